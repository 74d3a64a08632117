"""`octavo serve` over https: a certificate is used or told to be unusable before anything is loaded."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PROGRAM = "import sys; from octavo.cli.main import main; sys.exit(main())"


def write_certificate(folder: Path, password: bytes | None = None) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "octavo test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    closed = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, closed)
    )
    return folder / "cert.pem", folder / "key.pem"


def serve(folder: Path, *flags: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", PROGRAM, "serve", str(folder), "--num-blocks", "64", "--port", "0", *flags]
    return subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)


def test_answers_are_encrypted(toy_folder: Path, tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    with serve(toy_folder, "--tls-cert", str(cert), "--tls-key", str(key)) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            assert url.startswith("https://127.0.0.1:")
            trusting = ssl.create_default_context(cafile=str(cert))
            with urllib.request.urlopen(f"{url}/v1/models", context=trusting, timeout=20) as answer:
                assert json.load(answer)["data"][0]["id"] == "toy"
            with pytest.raises(OSError, match=r"emote end|reset|closed|Connection"):
                urllib.request.urlopen(url.replace("https", "http") + "/health", timeout=20)
        finally:
            process.terminate()
    assert process.returncode == 0


@pytest.mark.parametrize("wrong", ["absent", "no certificate", "another key", "password", "half"])
def test_what_cannot_be_used_is_told_at_once(wrong: str, toy_folder: Path, tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path, b"secret" if wrong == "password" else None)
    flags = ["--tls-cert", str(cert), "--tls-key", str(key)]
    if wrong == "absent":
        cert.unlink()
    elif wrong == "no certificate":
        cert.write_text("hello")
    elif wrong == "another key":
        (tmp_path / "other").mkdir()
        flags[3] = str(write_certificate(tmp_path / "other")[1])
    elif wrong == "half":
        flags = flags[:2]
    with serve(toy_folder, *flags) as process:
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 2
    assert said.startswith("octavo: error: ")
    assert said.count("\n") == 1
    assert "tls_key is missing" in said if wrong == "half" else str(cert) in said
