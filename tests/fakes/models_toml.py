"""A packaged models.toml of two pairs, and a user's over it."""

from specdec_cli.pairs.registry import load_registry

PACKAGED = 'schema_version = 1\n[pairs.a]\ntarget = "org/a"\nk = 4\n[pairs.b]\ntarget = "org/b"\n'


def users(files, text):
    files[1].parent.mkdir(exist_ok=True)
    files[1].write_text(text)
    return load_registry(*files)
