"""The drawing of ARCHITECTURE.md and the sizes of its files as tables, and what breaks them in a source tree."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

# Modules of public names alone, as the face is.
FACES = {"cache", "credentials", "order"}
# From the ground up. A room may import from any row above its own in this table, and from itself; in a row that is a
# tuple also from those left of it.
FLOORS: tuple[tuple[str, ...] | frozenset[str], ...] = (
    ("errors", "values", "histogram", "version", "tree", "options", "events", "display", "progress", "schema"),
    frozenset({"engine"}),
    frozenset({"stores"}),
    ("source", "copies", "verbs"),
    ("checkpoint", "data", "observe", "jobs"),
    frozenset({"interop", "ray", "testing", *FACES}),
    frozenset({"cli", "compat"}),
)
ROOMS = set().union(*FLOORS)
# Within a room, from the ground up: a part (a subpackage or a file) may import those left of it, and itself. Parts that
# share a tuple may import one another.
PARTS: dict[str, tuple[str | tuple[str, ...], ...]] = {
    "engine": (
        *("endpoint", "buffer", "budget", "waiting", "contracts", "support", "blocks", "node"),
        *("transport", "cache", "listing", "operations", "read", "fetch", "write"),
    ),
    "jobs": (*("trees", "tasks", "parts", "warm", "copying", "syncing", "packing", "mapping", "index"),),
    "data": (
        "unpacking",
        ("parquet", "ranks", "region"),
        "node_copy",
        "shards",
        "catalog",
        "vector_file",
        "order",
        "reading",
        "datasets",
        "zarr",
        "tokens",
        "video",
        "lerobot",
        "loading",
    ),
    "checkpoint": (
        *("integrity", "gather", "columns", "staging", "commit", "torchfile", "safetensors", "dcp", "run", "lightning"),
        "torch_checkpointing",
    ),
}
GROUND = set(FLOORS[0])
# Parts of the engine that do not know one another: what sends, what decides, what keeps.
ENGINES = ({"transport"}, {"operations", "read", "fetch", "write"}, {"cache"})
# testing tests the engines, so it may name them.
ABOVE_THE_WAIST = set().union(*FLOORS[4:]) - {"testing", *FACES}
FOR_STORES = {"contracts", "transport", "endpoint", "buffer", "budget", "waiting", "support", "blocks", "node"}
FOR_STORES |= {"listing"}
STORES_FOR_ALL = {"urls", "store"}  # of stores/, what rooms above source may see: no store by name
STORES_FOR_ALL |= {"profiles.effective", "profiles.sinks", "profiles.files", "profiles.multistorage", "http.network"}
USERS = {"cli"}  # rooms that use Penstock as a user does: `import penstock`

# Foreign library -> its homes (a room, or one file of it). A library that is not here has no home yet.
HOMES = {
    "IPython": ("progress",),
    "PIL": ("cli.demo", "testing", "compat.streaming"),
    "azure": ("stores.azure.store",),
    "av": ("data.video.packets",),
    "awscrt": ("stores.s3.checksums",),
    "boto3": ("cli.demo", "testing"),
    "botocore": ("stores.s3.credentials",),
    "certifi": ("stores.http.network",),
    "cloudpickle": ("data.loading.sendable",),
    "ctypes": (*tuple(f"engine.transport.{file}" for file in ("libcurl", "easy", "loop", "stream")), "engine.buffer"),
    "fastcrc": ("stores", "testing", "data.shards.tfrecord"),
    "fsspec": ("interop", "stores.fsspec"),
    "google": ("stores.gcs.store", "compat.dataflux_pytorch.listing"),
    "google_crc32c": ("data.zarr",),
    "hypothesis": ("testing",),
    "isal": ("checkpoint.integrity", "data.shards.zip"),
    "lightning": ("checkpoint.lightning", "compat"),
    "matplotlib": ("display", "data.loading"),
    "moto": ("cli.demo", "testing"),
    "numcodecs": ("data.zarr",),
    "numpy": tuple(ROOMS),
    "obspec": ("interop",),
    "opentelemetry": ("observe",),
    "prometheus_client": ("observe",),
    "pyarrow": ("data.parquet", "data.shards.parquet", "data.unpacking", "interop", "ray.data"),
    "pycurl": ("engine.transport.libcurl",),
    "pytest": ("testing",),
    "ray": ("ray", "jobs.parts.carriers"),
    "rich": ("cli", "progress"),
    "safetensors": ("checkpoint",),
    "sklearn": ("cli.demo", "testing"),
    "torch": (
        "data.reading",
        "data.datasets",
        "data.loading",
        "data.zarr",
        "data.tokens",
        "data.video",
        "data.lerobot",
        "checkpoint",
        "ray.train",
        "cli.demo",
        "compat",
    ),
    "torch_checkpointing": ("checkpoint.torch_checkpointing",),
    "typer": ("cli",),
    "upath": ("interop",),
    "webdataset": ("compat.webdataset",),
    "xarray": ("compat", "data.zarr"),
    "xxhash": ("engine.cache", "checkpoint", "data.shards.mds", "jobs.mapping.outputs"),
    "yaml": ("stores.profiles.files", "compat.multistorageclient"),
    "zarr": ("data.zarr", "interop", "compat"),
    "zstandard": ("data.unpacking",),
}
ALWAYS_THERE = {"ctypes", "numpy", "pycurl", "xxhash"}  # dependencies without an extra, and the standard library's
ARITHMETIC = {"numpy", "xxhash"}  # what pure files may use
DONE_WITHOUT = {"certifi", "cloudpickle"}  # used where it happens to be installed, and never missed
# Rooms, or single files, that nobody enters without the library, so they may import it at once; all others do it inside
# a function.
FACING = {
    *(
        ("torch", "data.datasets"),
        ("torch", "data.reading"),
        ("torch", "data.loading"),
        ("torch", "data.zarr"),
        ("torch", "data.tokens"),
        ("torch", "data.video"),
        ("torch", "data.lerobot"),
    ),
    *(
        ("pytest", "testing"),
        ("hypothesis", "testing"),
        ("ray", "ray.data"),
        ("pyarrow", "ray.data"),
    ),
    *(("typer", "cli.app"), ("typer", "cli.options"), ("typer", "cli.commands")),
    *(("torch", "checkpoint.dcp"), ("torch", "checkpoint.lightning")),
    ("torch", "checkpoint.run.ranks"),
    ("torch_checkpointing", "checkpoint.torch_checkpointing"),
    *(
        ("lightning", "checkpoint.lightning"),
        ("fsspec", "interop.fsspec"),
        ("pyarrow", "interop.arrow"),
        ("upath", "interop.path"),
        ("zarr", "interop.zarr"),
    ),
    ("torch", "compat.filesystem"),
    ("torch", "compat.osstorchconnector"),
    ("torch", "compat.multistorageclient.torch"),
    ("torch", "compat.webdataset"),
    ("torch", "compat.streaming"),
}

PURE_FILES = {"plan", "evict", "select", "shuffle", "key", "layout"}
PURE_FILES |= {"rate", "share", "table"}
PURE_PLACES = ("data.order", "engine.budget", "engine.listing")
DOES_IO = {
    *("os", "io", "pathlib", "shutil", "tempfile", "glob", "mmap", "logging"),
    *("socket", "ssl", "select", "selectors", "asyncio", "http", "urllib"),
    *("threading", "multiprocessing", "concurrent", "queue", "subprocess", "signal", "ctypes"),
    *("time", "datetime", "random", "secrets", "uuid"),  # not I/O, but another answer on every call
}
IO_CALLS = {"open", "print", "input"}

FILE_LINES, FUNCTION_LINES, ARGUMENTS, CONTRACT_METHODS, FOLDER_FILES = 700, 60, 6, 5, 20
LEAST_LINES = 80  # of a file with one importer, which is beside it
SAME_CLASSES, SAME_FUNCTIONS = 2, 6  # of one name, at the top of modules
# Rooms whose names are those of other libraries.
OTHERS_NAMES = {"compat", "interop"}
# Not public themselves, but what stands behind the arguments of public functions and takes all of them.
BEHIND_PUBLIC = {
    *(("penstock.data.datasets.dataset", f"from_{each}") for each in ("prefix", "manifest", "shards")),
    # Public as names of the package.
    ("penstock.interop.zarr.parts", "copy"),
    *(("penstock.ray.data", name) for name in ("write", "__init__")),
}
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z][a-z0-9]*)?|__init__|__main__")
THEIR_NAMES = {  # modules that other libraries' users import by these names: design/0036
    *("dataflux_pytorch", "dataflux_mapstyle_dataset", "dataflux_iterable_dataset", "dataflux_checkpoint"),
    *("dataflux_lightning_checkpoint", "gcs_filesystem", "multipart_upload"),
    *("s3_file_system", "s3_prefix_strategy"),
}
REFUSED_NAMES = {"utils", "util", "common", "base", "core", "manager", "helpers", "misc"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Import(NamedTuple):
    """One imported name, as far as it can be told from the text."""

    module: str
    line: int
    target: str
    late: bool  # inside a function
    typing: bool  # under `if TYPE_CHECKING`: counts for floors and homes, not for when it happens


class Module(NamedTuple):
    """One file: its dotted name, text, tree and imports."""

    name: str
    text: str
    tree: ast.Module
    imports: list[Import]

    @property
    def room(self) -> str:
        """The first word after `penstock`; empty for the face, `penstock/__init__.py`."""
        return room(self.name)

    @property
    def pure(self) -> bool:
        return any(lies(self, place) for place in PURE_PLACES) or self.name.rpartition(".")[2] in PURE_FILES


def room(name: str) -> str:
    return "cli" if name == "penstock.__main__" else [*name.split("."), ""][1]


def floor(of: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if of in rooms)


def complaints(sources: Mapping[str, str]) -> list[str]:
    """Return every breach of the rules in `{dotted module name: text}`, as `module:line: rule: what`."""
    modules = {name: parse(name, text, sources) for name, text in sources.items()}
    known = ROOMS | {""}
    found = [f"{m.name}:1: rooms: {m.room} has no floor" for m in modules.values() if m.room not in known]
    public = public_names(modules)
    for module in modules.values():
        if module.room in known:
            found += [f"{module.name}:{line}: {what}" for line, what in crowded_signatures(module, public)]
            for check in (arrows, parts, contracts, homes, purity, sizes):
                found += [f"{module.name}:{line}: {what}" for line, what in check(module)]
    for rule in (extras, circles, crowds, crumbs, namesakes):
        found += rule(modules)
    return found


# -- reading ---------------------------------------------------------------------------------------------------------


def parse(name: str, text: str, names: Mapping[str, object]) -> Module:
    tree = ast.parse(text, name)
    return Module(name, text, tree, list(imports(name, tree, names)))


def imports(
    module: str, node: ast.AST, names: Mapping[str, object], *, late: bool = False, typing: bool = False
) -> Iterator[Import]:
    """Yield every import under `node`, wherever it stands."""
    for child in ast.iter_child_nodes(node):
        for target in targets(child):
            yield Import(module, child.lineno, module_of(target, names), late, typing)
        inside = late or isinstance(child, Function)
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from imports(module, ast.Module(child.body, []), names, late=inside, typing=True)
            yield from imports(module, ast.Module(child.orelse, []), names, late=inside, typing=typing)
        else:
            yield from imports(module, child, names, late=inside, typing=typing)


def module_of(target: str, names: Mapping[str, object]) -> str:
    """Cut `penstock.room.file.name` to the module that it lies in; a name that is no room's is the face's."""
    if not target.startswith("penstock."):
        return target
    while target not in names and target.count(".") > 1:
        target = target.rpartition(".")[0]
    return target if target in names or room(target) in ROOMS else "penstock"


def targets(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [name.name for name in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            return [f"{'.' * level}{module or ''}.{name.name}" for name in names]
        case ast.Call(func=ast.Name("import_module" | "__import__") | ast.Attribute(attr="import_module")):
            return [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    return []


# -- rules -----------------------------------------------------------------------------------------------------------


def arrows(module: Module) -> Iterator[tuple[int, str]]:
    """Rules 1, 3, 4, 5 and 7: who may import whom among ours."""
    for each in dict.fromkeys(i._replace(target=room(i.target)) for i in module.imports if is_ours(i)):
        if module.room and each.target != module.room and (why := refusal(module.room, each.target)):
            yield each.line, why
    for line, target in dict.fromkeys((i.line, i.target) for i in module.imports):
        if why := by_part(module, target):
            yield line, why
        if target.startswith("."):
            yield line, "rule 1: relative import: spell the module out"


def by_part(module: Module, target: str) -> str:
    """Rules 3 and 4, which look at parts of rooms."""
    if room(target) == "engine":
        return by_engine(module, part(target))
    if room(target) == "stores":
        return by_store(module.room, target.removeprefix("penstock.stores."))
    if lies(module, "data.order") and is_ours_name(target) and room(target) not in GROUND and part(target) != "order":
        return f"order: integers only: it may not import {target.removeprefix('penstock.')}"
    return ""


def by_engine(module: Module, theirs: str) -> str:
    """Rule 3 within the engine, and rule 4 for rooms above it."""
    if module.room in ABOVE_THE_WAIST and any(theirs in engine for engine in ENGINES):
        return f"rule 4: only source joins engines: {module.room} may not import engine.{theirs}"
    if module.room == "stores" and theirs not in FOR_STORES:
        return f"rule 4: a store opens, and fetches nothing: stores may not import engine.{theirs}"
    if module.room == "source" and theirs == "transport":
        return "rule 4: source names no dialect: source may not import engine.transport"
    mine = part(module.name) if module.room == "engine" else ""
    if any(mine in engine and theirs in set().union(*ENGINES) - engine for engine in ENGINES):
        return f"rule 3: engines are strangers: {mine} may not import {theirs}"
    return ""


def by_store(importer: str, file: str) -> str:
    """Rule 4: rooms above the stores see what all of them share, and the options of each."""
    seen = STORES_FOR_ALL | ({"profiles.store"} if importer == "source" else set())
    if importer not in ABOVE_THE_WAIST | {"source"} or file in seen or file.endswith((".options", "penstock.stores")):
        return ""
    return f"rule 4: a URL says which store: {importer} may not import stores.{file}"


def parts(module: Module) -> Iterator[tuple[int, str]]:
    """Rule 1 within a room whose parts have an order."""
    rank = {
        name: n
        for n, names in enumerate(PARTS.get(module.room, ()))
        for name in ([names] if isinstance(names, str) else names)
    }
    importer = part(module.name)
    if not rank or not importer:
        return
    if importer not in rank:
        yield 1, f"rule 1: {module.room}/{importer} has no place among the parts of {module.room}"
        return
    for each in dict.fromkeys(
        i._replace(target=part(i.target)) for i in module.imports if room(i.target) == module.room
    ):
        if each.target != importer and rank.get(each.target, -1) > rank[importer]:
            yield each.line, f"rule 1: {module.room}/{importer} may not import {module.room}/{each.target}"


def part(name: str) -> str:
    """Return the third word of `penstock.room.part.file`; empty for the room itself."""
    return [*name.split("."), "", ""][2]


def refusal(importer: str, imported: str) -> str:  # noqa: PLR0911  a table of reasons, the most telling first
    if not imported:
        return "" if importer in USERS else f"rule 1: {importer} may not import the face, which imports everything"
    if imported not in ROOMS:
        return f"rooms: {imported} has no floor"
    if imported == "testing":
        return "" if importer == "cli" else f"testing: only cli/demo and tests import it, not {importer}"
    if {importer, imported} == {"data", "checkpoint"}:
        return f"rule 5: {importer} may not know {imported}"
    if importer == "engine" and imported == "observe":
        return f"rule 7: engines emit events: {importer} may not import a sink"
    if not below(imported, importer):
        return f"rule 1: {importer} may not import {imported}: floor {floor(importer)} to {floor(imported)}"
    return ""


def below(imported: str, importer: str) -> bool:
    """Say whether a room lies below another one: on a lower floor, or left of it in a row with an order."""
    row = FLOORS[floor(importer)]
    if imported in row:
        return isinstance(row, tuple) and row.index(imported) < row.index(importer)
    return floor(imported) < floor(importer)


def contracts(module: Module) -> Iterator[tuple[int, str]]:
    """Rule 2, second half: engine/contracts/ holds contracts of one to five methods, and no algorithm."""
    if not module.name.startswith("penstock.engine.contracts"):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, Function) and not is_promise(node):
            yield node.lineno, f"rule 2: {node.name} has a body: engine/contracts/ holds no algorithm"
        if isinstance(node, ast.ClassDef) and "Protocol" in {ast.unparse(b).partition("[")[0] for b in node.bases}:
            methods = sum(isinstance(each, Function) for each in node.body)
            if not 1 <= methods <= CONTRACT_METHODS:
                yield node.lineno, f"rule 2: contract {node.name} has {methods} methods, not 1 to {CONTRACT_METHODS}"


def is_promise(node: Function) -> bool:
    """Say whether a function is nothing but a docstring or `...`."""
    return all(isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) for line in node.body)


def homes(module: Module) -> Iterator[tuple[int, str]]:
    """Rule 2, first half, and rule 6: every foreign library in its home, optional ones late."""
    for each in dict.fromkeys(i._replace(target=library(i)) for i in module.imports if is_foreign(i)):
        where = HOMES.get(each.target, ())
        inside = [home for home in where if lies(module, home)]
        if module.room in GROUND and each.target != "numpy" and not inside:
            yield each.line, f"rule 2: ground imports the standard library and numpy only, not {each.target}"
        elif not where:
            yield each.line, f"rule 6: {each.target} has no home: give it one in HOMES"
        elif not inside:
            yield each.line, f"rule 6: {each.target} lives in {', '.join(where)}"
        elif not (each.late or each.typing or each.target in ALWAYS_THERE or faces(each.target, module)):
            yield each.line, f"rule 6: {each.target} is optional: import it inside the function that needs it"


def lies(module: Module, home: str) -> bool:
    """Say whether a module is a home or lies in it: a room, or one file of it."""
    return f"{module.name}.".startswith(f"penstock.{home}.")


def faces(library: str, module: Module) -> bool:
    return any(library == each and lies(module, home) for each, home in FACING)


def extras(modules: Mapping[str, Module]) -> Iterator[str]:
    """Rule 6: a room with an optional library tells which extra to install where it is missing."""
    rooms: dict[str, list[Module]] = {}
    for module in modules.values():
        rooms.setdefault(module.room, []).append(module)
    for name, members in rooms.items():
        foreign = [(library(i), m) for m in members for i in m.imports if is_foreign(i) and not i.typing]
        late = sorted({each for each, m in foreign if not faces(each, m)} - ALWAYS_THERE - DONE_WITHOUT)
        if late and not any(
            word in m.text for m in members for word in ("require_extras", "MissingExtra", "penstock[")
        ):
            yield f"penstock.{name}:1: rule 6: nothing names the extra that brings {', '.join(late)}"


def purity(module: Module) -> Iterator[tuple[int, str]]:
    """Rule 8: pure files import nothing that does I/O, and do none by built-in names."""
    if not module.pure:
        return
    for each in dict.fromkeys(i._replace(target=library(i)) for i in module.imports):
        if each.target in DOES_IO or (is_foreign(each) and each.target not in ARITHMETIC and each.target in HOMES):
            yield each.line, f"rule 8: a pure file may not import {each.target}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IO_CALLS:
            yield node.lineno, f"rule 8: a pure file may not call {node.func.id}"


def circles(modules: Mapping[str, Module]) -> Iterator[str]:
    """Rule 1: no import circles, not even late or for types. The face is everyone's, and left out."""
    after = {m.name: {i.target for i in m.imports if i.target in modules} - {"penstock"} for m in modules.values()}
    # Peel off what imports nothing that is left, and then what nothing left imports: circles remain.
    while leaves := [name for name, targets in after.items() if not targets & after.keys()]:
        after = {name: targets for name, targets in after.items() if name not in leaves}
    while roots := after.keys() - set().union(*after.values()):
        after = {name: targets for name, targets in after.items() if name not in roots}
    if after:
        yield f"{min(after)}:1: rule 1: import circle among {', '.join(sorted(after))}"


def crowds(modules: Mapping[str, Module]) -> Iterator[str]:
    """Section 7: a folder has few enough files to be read at a glance; more are subpackages."""
    folders = Counter(name.rpartition(".")[0] for name in modules)
    for folder, count in sorted(folders.items()):
        if count > FOLDER_FILES and folder != "penstock":
            yield f"{folder}:1: section 7: {count} files and subpackages: a folder has at most {FOLDER_FILES}"


def crumbs(modules: Mapping[str, Module]) -> Iterator[str]:
    """Section 7: a short file whose only importer lies in the same folder is a part of that file."""
    importers: dict[str, set[str]] = {}
    for module in modules.values():
        for each in module.imports:
            importers.setdefault(each.target, set()).add(module.name)
    packages = {name.rpartition(".")[0] for name in modules}
    for name, module in sorted(modules.items()):
        lines, folder = len(module.text.splitlines()), name.rpartition(".")[0]
        only, *more = importers.get(name, {""})
        if lines < LEAST_LINES and not more and only.rpartition(".")[0] == folder and only and name not in packages:
            yield f"{name}:1: section 7: {lines} lines, and only {only} imports it: it belongs there"


def namesakes(modules: Mapping[str, Module]) -> Iterator[str]:
    """One name, one meaning: modules define few classes and functions of one name at their top.

    The rooms with names of other libraries are left out; a leading underscore makes no other name.
    """
    homes: dict[tuple[str, int], list[str]] = {}
    for name, module in modules.items():
        if module.room in OTHERS_NAMES:
            continue
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                most = SAME_CLASSES if isinstance(node, ast.ClassDef) else SAME_FUNCTIONS
                homes.setdefault((node.name.lstrip("_"), most), []).append(name)
    for (name, most), found in sorted(homes.items()):
        if len(found) > most:
            first, *others = found
            yield f"{first}:1: names: {name} is defined in {len(found)} modules ({', '.join(others)}), at most {most}"


def unmirrored(sources: Iterable[str], tests: Collection[str]) -> list[str]:
    """Return the modules that no file of `tests` mirrors: `penstock.a.b` is tested by `a/test_b.py`.

    `engine/contracts/` and `data/order/protocol` hold contracts only; `__init__`, `__main__` and the modules of public
    names nothing of their own.
    """
    plain = [name.split(".")[1:] for name in sources]
    named = {
        "/".join([*folders, f"test_{name}.py"]): ".".join([*folders, name]) for *folders, name in filter(None, plain)
    }
    packages = {".".join(parts[:count]) for parts in plain for count in range(1, len(parts))}
    return [
        name
        for path, name in named.items()
        if path not in tests
        and name not in packages
        and not name.endswith("__main__")
        and not name.startswith(("engine.contracts.", "data.order.protocol"))
        and name not in FACES
    ]


def sizes(module: Module) -> Iterator[tuple[int, str]]:
    """Section 7: sizes and names."""
    lines = module.text.splitlines()
    if len(lines) > FILE_LINES:
        yield 1, f"section 7: {len(lines)} lines: a file has at most {FILE_LINES}"
    for word in module.name.split("."):
        if word in REFUSED_NAMES or not (NAME.fullmatch(word) or (module.room == "compat" and word in THEIR_NAMES)):
            yield 1, f"section 7: {word} must be one or two lower-case words that say the job"
    for node in ast.walk(module.tree):
        if isinstance(node, Function) and (code := code_lines(node, lines)) > FUNCTION_LINES:
            yield node.lineno, f"section 7: {node.name} has {code} code lines, more than {FUNCTION_LINES}"


def crowded_signatures(module: Module, public: Collection[str]) -> Iterator[tuple[int, str]]:
    """Section 7: arguments of functions that no user calls. A public signature shows each of its options."""
    if module.room in {"compat", "cli"}:
        return
    for scope in ast.walk(module.tree):
        owner = f"{scope.name}." if isinstance(scope, ast.ClassDef) else ""
        for node in ast.iter_child_nodes(scope):
            if not isinstance(node, Function) or f"{module.name}.{owner or node.name}".rstrip(".") in public:
                continue
            if (count := arguments(node)) > ARGUMENTS and (module.name, node.name) not in BEHIND_PUBLIC:
                yield node.lineno, f"section 7: {node.name} takes {count} arguments, more than {ARGUMENTS}"


def public_names(modules: Mapping[str, Module]) -> set[str]:
    """Return the functions and classes that users import, as `module.name`: of the face, and in `__all__`."""
    found = set()
    for module in modules.values():
        for node in module.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name("_HOMES")], value=ast.Dict() as homes) if not module.room:
                    found |= {f"penstock.{home}.{name}" for name, home in ast.literal_eval(homes).items()}
                case ast.Assign(targets=[ast.Name("__all__")], value=ast.List(elts=names)):
                    found |= {f"{module.name}.{name.value}" for name in names if isinstance(name, ast.Constant)}
    return found


def code_lines(node: Function, lines: list[str]) -> int:
    doc = node.body[0] if ast.get_docstring(node) is not None else None
    prose = range(doc.lineno, doc.end_lineno + 1) if doc else ()
    body = [lines[number - 1].strip() for number in range(node.lineno, node.end_lineno + 1) if number not in prose]
    return sum(bool(line) and not line.startswith("#") for line in body)


def arguments(node: Function) -> int:
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def library(imported: Import) -> str:
    return imported.target.partition(".")[0]


def is_ours(imported: Import) -> bool:
    return library(imported) == "penstock"


def is_ours_name(target: str) -> bool:
    return target.partition(".")[0] == "penstock"


def is_foreign(imported: Import) -> bool:
    """Not ours and not the standard library's; ctypes counts, for it is where pointers come from."""
    name = library(imported)
    return bool(name) and name != "penstock" and (name in HOMES or name not in sys.stdlib_module_names)
