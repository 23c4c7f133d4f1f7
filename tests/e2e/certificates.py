"""Certificates for tests, made with openssl: authorities, and what they sign for servers and clients."""

import subprocess
from pathlib import Path

DATABASE = """
[ca]
default_ca = it
[it]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
"""


class Authority:
    """An authority with its files in a folder of its own: ca.pem signs NAME.pem with NAME.key."""

    def __init__(self, folder, name="tests"):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        (self.folder / "index.txt").touch()
        (self.folder / "ca.conf").write_text(DATABASE.format(folder=self.folder))
        self.ca = self.folder / "ca.pem"
        key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
        self._openssl(f"req -x509 {key} -days 30 -subj /CN={name} -keyout ca.key -out ca.pem")

    def issue(self, name, days=30, start=None, end=None, algorithm="ec -pkeyopt ec_paramgen_curve:prime256v1"):
        """Certificate and key for localhost and 127.0.0.1; `start` and `end` are YYYYMMDDHHMMSSZ."""
        extension = "-addext subjectAltName=DNS:localhost,IP:127.0.0.1"
        self._openssl(f"req -newkey {algorithm} -nodes -subj /CN={name} {extension} -keyout {name}.key -out {name}.csr")
        times = f"-startdate {start} -enddate {end}" if end else f"-days {days}"
        self._openssl(f"ca -batch -notext -config ca.conf {times} -cert ca.pem -keyfile ca.key -in {name}.csr -out {name}.pem")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _openssl(self, arguments):
        done = subprocess.run(["openssl", *arguments.split()], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
