"""The HTTP server: OpenAI's protocol over `octavo.AsyncEngine`. Schedules nothing and touches no arrays."""
