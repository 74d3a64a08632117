"""Every line of the log as a JSON object on standard error. Knows no request."""

from __future__ import annotations

import json
import logging
import time

PLAIN = "octavo.server.access"  # whose messages are JSON objects already


class JsonLines(logging.Formatter):
    """time, level, logger, message; of an exception its traceback. One line each, whatever the message holds."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        if record.name == PLAIN:
            return record.getMessage()
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def log_to_stderr() -> None:
    """Warnings of everybody, and the lines about requests. Replaces what handlers there are."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(PLAIN).setLevel(logging.INFO)
