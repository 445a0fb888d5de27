"""Clients of the registries of Python and Node against `orlop serve` with the default model: streams, tools, schemas, cancelling.

Called by `cargo xtask check clients` with the `orlop` command and a folder, into which the clients are installed.
"""

import pathlib
import subprocess
import sys
import time

from served import serving

SCRIPTS = pathlib.Path(__file__).parent / "clients"

# Of each script: the packages that are installed for it, in a folder of their own.
PYTHON = [
    ("openai_client.py", ["openai==2.*"]),
    ("openai_client.py", ["openai"]),
    ("anthropic_client.py", ["anthropic"]),
    ("langchain_client.py", ["langchain-openai", "langchain-core"]),
    ("litellm_client.py", ["litellm"]),
]
NODE = [
    ("openai_client.mjs", ["openai", "zod"]),
    ("ai_client.mjs", ["ai", "@ai-sdk/openai-compatible", "zod"]),
]


def name_of(packages):
    return packages[0].replace("/", "-").replace("*", "x").replace("==", "-")


def python(folder, packages):
    """An environment with packages, the newest that there are."""
    home = folder / f"python-{name_of(packages)}"
    if not home.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
    interpreter = home / "bin" / "python"
    subprocess.run([interpreter, "-m", "pip", "--quiet", "install", "--upgrade", *packages], check=True)
    return interpreter


def node(folder, packages):
    """A folder with packages, and the script's own copy: Node looks for packages beside a script."""
    home = folder / f"node-{name_of(packages)}"
    home.mkdir(exist_ok=True)
    (home / "package.json").write_text('{"private": true}')
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", *(f"{package}@latest" for package in packages)]
    subprocess.run(install, cwd=home, check=True)
    return home


def installed():
    """Each client's name, and the command that runs it."""
    folder = pathlib.Path(sys.argv[2]) / "clients"
    folder.mkdir(exist_ok=True)
    for script, packages in PYTHON:
        yield packages[0], [python(folder, packages), "-B", SCRIPTS / script]
    for script, packages in NODE:
        copy = node(folder, packages) / script
        copy.write_text((SCRIPTS / script).read_text())
        yield f"{packages[0]} (Node)", ["node", copy]


def wait_until_idle(server):
    """A client that has gone away cancels its request."""
    for _ in range(100):
        if server.metric("orlop_num_requests_running") + server.metric("orlop_num_requests_waiting") == 0:
            return
        time.sleep(0.1)
    raise SystemExit("a cancelled request goes on")


def main():
    failed = []
    clients = list(installed())
    with serving(sys.argv[1], "-c", "8192") as server:
        for name, command in clients:
            print(f"{name}:", flush=True)
            status = subprocess.run([*command, server.url], timeout=900).returncode
            wait_until_idle(server)
            if status != 0:
                failed.append(name)
    assert not failed, f"clients that failed: {', '.join(failed)}"


if __name__ == "__main__":
    main()
