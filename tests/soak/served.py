"""Processes of a soak: `stemma serve`, and the redis-server beside it."""

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import threading


class Served:
    """A `stemma serve` on a port of its own. `log` gets its flags and whatever it says."""

    def __init__(self, program, model, flags, log):
        self.flags = flags
        with open(log, "ab") as out:
            out.write((" ".join(flags) + "\n").encode())
            out.flush()
            self.process = subprocess.Popen([program, "serve", "--model", model, "--port", "0", *flags],
                                            stdout=subprocess.PIPE, stderr=out)
        said = self.process.stdout.readline().decode()
        found = re.search(r"http://[^:]*:(\d+)", said)
        if found is None:
            raise RuntimeError(f"the server did not start (exit code {self.process.wait()}): {' '.join(flags)}; see {log}")
        self.port = int(found.group(1))
        # What else it prints is read, or the pipe would fill.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def ask(self, method, path, body=None, key=""):
        """(status, text); OSError or http.client.HTTPException where the server went away."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers_of(key))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def leave_after(self, path, body, key, read_bytes):
        """Asks, reads so much of the answer and hangs up."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request("POST", path, json.dumps(body), headers_of(key))
            connection.getresponse().read(read_bytes)
        finally:
            connection.close()

    def ended(self):
        return self.process.poll() is not None

    def end(self, how=signal.SIGTERM):
        """The exit code, once it has ended."""
        self.process.send_signal(how)
        return self.process.wait(timeout=300)


def headers_of(key):
    return {"content-type": "application/json", "authorization": f"Bearer {key}"}


class Redis:
    """A redis-server that keeps nothing over a restart, and forgets what is least used beyond 64 MB."""

    @staticmethod
    def there_is():
        return shutil.which("redis-server") is not None

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        words = ["redis-server", "--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", self.folder,
                 "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def forget(self):
        subprocess.run(["redis-cli", "-p", str(self.port), "flushall"], capture_output=True, check=False)
