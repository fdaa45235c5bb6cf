"""A headless Chromium that a test drives through its debugging pipe: messages of JSON, each ended by NUL.

    with Browser() as browser:
        page = browser.open(path, width=1280, dark=False)
        page.value("document.title")
        page.problems()      # what it complained about
        page.screenshot(png)

From a shell, a picture of a page, or of the parts of it that CSS selectors name:
    browser.py PAGE PNG [--width N] [--dark] [--select SELECTOR]
"""
import argparse
import base64
import collections
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")


def find():
    """The program's path, or None: no such browser here."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self, timeout=60):
        program = find()
        if program is None:
            raise RuntimeError("no Chromium found, what to do: apt-get install chromium")
        self.timeout = timeout
        self.folder = tempfile.TemporaryDirectory(prefix="shardscope-browser-", ignore_cleanup_errors=True)
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        for end in (to_browser, from_browser):
            os.close(end)

        def place_ends():  # the browser reads from 3 and writes to 4
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.log = open(pathlib.Path(self.folder.name) / "log", "w+b")
        self.process = subprocess.Popen(
            # No sandbox: it needs what containers and root do not have. Only files of this test are opened.
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--disable-component-update",
             "--hide-scrollbars", f"--user-data-dir={self.folder.name}/profile", "--remote-debugging-pipe"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, pass_fds=(3, 4), preexec_fn=place_ends,
            start_new_session=True, env={**os.environ, "HOME": self.folder.name})
        for end in ends:
            os.close(end)
        self.last_id = 0
        self.buffer = b""
        self.events = collections.defaultdict(list)  # session -> messages

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.ask("Browser.close")
            self.process.wait(10)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            pass
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for end in (self.write_end, self.read_end):
            os.close(end)
        self.log.close()
        self.folder.cleanup()

    def ask(self, method, session=None, **parameters):
        """The result of a command; RuntimeError where it is refused, or no answer comes in time."""
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        rest = json.dumps(message).encode() + b"\0"
        while rest:
            rest = rest[os.write(self.write_end, rest):]
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self.next_message(deadline, method)
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]

    def next_message(self, deadline, waiting_for):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.read_end, 1 << 20) if ready else b""
            if not data:
                self.log.seek(0)
                raise RuntimeError(f"{waiting_for}: the browser {'ended' if ready else 'does not answer'}: "
                                   f"{self.log.read()[-2000:].decode(errors='replace')}")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message:
            self.events[message.get("sessionId")].append(message)
        return message

    def open(self, path, width=1280, height=900, dark=False):
        """A page with that file, loaded."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        page = BrowserPage(self, target)
        page.size(width, height)
        page.scheme(dark)
        page.load(path)
        return page


class BrowserPage:
    def __init__(self, browser, target):
        self.browser = browser
        self.target = target
        self.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **parameters):
        return self.browser.ask(method, self.session, **parameters)

    def load(self, path):
        self.browser.events[self.session].clear()
        self.url = pathlib.Path(path).resolve().as_uri()
        self.ask("Page.navigate", url=self.url)
        deadline = time.monotonic() + self.browser.timeout
        while not any(event["method"] == "Page.loadEventFired" for event in self.browser.events[self.session]):
            self.browser.next_message(deadline, "loading")

    def size(self, width, height=900):
        self.width = width
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                 mobile=width < 500)
        self.settle()

    def scheme(self, dark):
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[feature])
        self.settle()

    def settle(self):
        """Until the page has drawn what its observers asked for."""
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def value(self, expression):
        """What the expression gives, awaited; RuntimeError with the page's words where it throws."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def texts(self, selector):
        """Of all elements that it finds."""
        return self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")

    def problems(self):
        """What went wrong since it was loaded: exceptions, console errors and warnings, whatever else was requested."""
        found = []
        for event in self.browser.events[self.session]:
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                found.append(f"exception: {details.get('exception', {}).get('description', details['text'])}")
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                found.append(f"console: {[one.get('value') for one in parameters['args']]}")
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(f"log: {parameters['entry']['text']}")
            elif event["method"] == "Network.requestWillBeSent" and parameters["request"]["url"] != self.url:
                found.append(f"request: {parameters['request']['url'][:100]}")
        return found

    def screenshot(self, path, selector="html", scale=1):
        """The box around all elements of that selector, as PNG."""
        self.size(self.width, self.value("document.documentElement.scrollHeight"))  # canvases out of sight stay empty
        box = self.value(f"""((boxes) => {{
          const [left, top] = ["left", "top"].map((side) => Math.min(...boxes.map((box) => box[side])));
          const [right, bottom] = ["right", "bottom"].map((side) => Math.max(...boxes.map((box) => box[side])));
          return {{x: left + scrollX, y: top + scrollY, width: right - left, height: bottom - top}};
        }})([...document.querySelectorAll({json.dumps(selector)})].map((one) => one.getBoundingClientRect()))""")
        data = self.ask("Page.captureScreenshot", format="png", clip={**box, "scale": scale})["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def pdf(self):
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def close(self):
        self.browser.ask("Target.closeTarget", targetId=self.target)
        self.browser.events.pop(self.session, None)


def main():
    parser = argparse.ArgumentParser(description="a picture of a page")
    parser.add_argument("page")
    parser.add_argument("png")
    parser.add_argument("--width", type=int, default=1280, help="of the window, in pixels")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--select", default="html", help="CSS selectors: the box around all that they find")
    options = parser.parse_args()
    with Browser() as browser:
        page = browser.open(options.page, width=options.width, dark=options.dark)
        page.screenshot(options.png, options.select)
        for problem in page.problems():
            print(problem)


if __name__ == "__main__":
    main()
