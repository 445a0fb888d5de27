"""`orlop serve` for scripts: started on a free port, and stopped at the end."""

import contextlib
import json
import subprocess
import urllib.request


class Server:
    """A server that answers; `url` is its address."""

    def __init__(self, url):
        self.url = url

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read().decode()

    def metric(self, name):
        lines = self.get("/metrics").splitlines()
        return next(float(line.split()[-1]) for line in lines if line.split()[0] == name)


@contextlib.contextmanager
def serving(orlop, *arguments):
    """A server with the default model and some arguments."""
    command = [orlop, "serve", "--port", "0", "--log", "json", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        address = None
        for line in process.stderr:
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "ready":
                address = event["address"]
                break
        if address is None:
            raise SystemExit(f"the server has ended: {process.wait()}")
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield Server(f"http://{address}")
    finally:
        process.terminate()
        code = process.wait(timeout=60)
        if address is not None:
            drain.wait(timeout=60)
            assert code == 0, f"the server ended with {code}"
