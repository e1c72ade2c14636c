"""Runs scripts/study-sessions.sh and study-failures.sh, whose sessions a rule answers."""

import json
import os
import subprocess
import sys

from compiled import PROGRAM, ROOT

WAITS = 5


def run(script, mode, out, *arguments) -> subprocess.CompletedProcess:
    environment = {**os.environ, "AGENTCOMPILE": str(PROGRAM), "PYTHON": sys.executable, "MODEL": "nobody",
                   "DATE": "2026-11-29"}  # fmt: skip
    command = [ROOT / "scripts" / script, mode, out, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def done(script, mode, out, *arguments) -> str:
    ran = run(script, mode, out, *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def first_changes(question) -> str:
    """A reply that proposes the first value of each of the first four fields."""
    legal = question.split("## Legal changes that were not tried")[1].split("## Budget")[0]
    changes = [line.split(":") for line in legal.strip().splitlines()][:4]
    proposals = [{"site": "", "field": field.strip(), "value": values.split()[0]} for field, values in changes]
    return json.dumps({"note": "", "proposals": proposals})
