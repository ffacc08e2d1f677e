"""The walk of a pair's name to its weights, in this checkout or another: `python tests/tools/walk.py [FOLDER]`.

Each command runs against a Hub on loopback. The walk is every call between two files that know pairs, models and the
Hub, from the first one on to the reading of weights. A stop is a file entered for the first time, a crossing is a place
in one file that calls into another, and a climb enters a higher layer.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
CHILD = """
import json, sys, threading
from pathlib import Path
import specdec_cli
root = str(Path(specdec_cli.__file__).parent) + "/"
steps, on = [], [False]
def look(frame, event, argument):
    if event != "call" or not frame.f_code.co_filename.startswith(root):
        return
    file = frame.f_code.co_filename[len(root):]
    if on[0] is None:
        return
    if file.startswith(("pairs/", "hub/")):
        on[0] = True
    back = frame.f_back
    while back is not None and not back.f_code.co_filename.startswith(root):
        back = back.f_back
    caller = back.f_code.co_filename[len(root):] if back else ""
    if on[0] and caller and caller != file and frame.f_code.co_name != "<module>" and back.f_code.co_name != "<module>":
        steps.append((caller, back.f_lineno, file))
    if file == "engine/load.py" and frame.f_code.co_name == "load_network":
        on[0] = None
threading.setprofile(look)
sys.setprofile(look)
try:
    from specdec_cli.cli.main import main
    main()
finally:
    sys.setprofile(None)
    open(OUT, "w").write(json.dumps(list(dict.fromkeys(steps))))
"""
WALK = ("cli/", "pairs/", "hub/", "models/", "session/load", "session/capacity", "serve/model")
WALK += ("engine/load", "engine/footprint", "engine/heads/load")
LAYERS = ("models", "hub", "engine", "pairs", "session", "serve", "cli")
COMMANDS = {
    "check": ["check", "tiny", "--json"],
    "pull": ["pull", "tiny"],
    "run": ["run", "-p", "tiny", "--raw", "-n", "1", "-q", "x"],
    "serve --switch": ["serve", "-p", "tiny", "--switch", "--port", "0", "--quiet"],
}


def main(checkout):
    sys.path.insert(0, str(HERE))
    from fakes.hub_server import HubServer
    from fakes.models import tiny_folder
    from fakes.world import BIG, MODELS, SMALL, World

    with tempfile.TemporaryDirectory() as folder, HubServer() as hub:
        root = Path(folder)
        hub.commit(BIG, tiny_folder(root / "big", seed=1))
        hub.commit(SMALL, tiny_folder(root / "small", seed=1, noise=0.05))
        world = World(hub, root)
        world.models.write_text(MODELS.split("[pairs.odd]")[0])
        for name, words in COMMANDS.items():
            report(name, edges(world, checkout, words))


def edges(world, checkout, words):
    """(caller, callee) of the walk, in the order of first calls."""
    out = world.root / "walk.json"
    command = [sys.executable, "-c", CHILD.replace("OUT", repr(str(out))), *words]
    environment = world.environment(PYTHONPATH=str(checkout), PYTHONSAFEPATH="1")
    process = subprocess.Popen(command, env=environment, cwd=checkout, stdout=-3, stderr=-3, stdin=-3)
    try:
        process.wait(60 if words[0] != "serve" else 25)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait(30)
    found = [(caller, callee) for caller, _, callee in json.loads(out.read_text())]
    return [edge for edge in found if all(file.startswith(WALK) for file in edge)]


def report(name, walk):
    stops = list(dict.fromkeys(callee for _, callee in walk))
    climbs = [edge for edge in dict.fromkeys(walk) if layer(edge[1]) > layer(edge[0])]
    print(f"{name}: {len(stops)} stops, {len(walk)} crossings, {len(climbs)} climbs")
    for caller, callee in climbs:
        print(f"  climb: {caller} -> {callee}")


def layer(file):
    return LAYERS.index(file.split("/")[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if sys.argv[1:] else HERE.parent)
