"""Configuration of Sphinx; `make docs` runs it (docs/site/__main__.py)."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.domains.python import PyObject

from penstock.version import VERSION

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Penstock"
copyright = "the Penstock authors"  # noqa: A001  Sphinx's name
release = version = VERSION
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "index"

myst_heading_anchors = 6
suppress_warnings = ["ref.python"]  # annotations such as Store, of which two modules have one
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes are listed like arguments
napoleon_custom_sections = ["Requests"]
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries = False

html_theme = "furo"
html_title = f"Penstock {VERSION}"
html_static_path = ["static"]
html_css_files = ["penstock.css"]
html_copy_source = False
html_show_sphinx = False
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5a9c", "color-brand-content": "#0b5a9c"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

_NAME = re.compile(r"(?:ps|penstock)\.([A-Za-z_][\w.]*)")


def _link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link each `ps.Name` of a page to the reference."""
    objects = app.env.domains.python_domain.objects
    for literal in [*doctree.findall(nodes.literal)]:
        found = _NAME.match(literal.astext())
        entry = objects.get(f"penstock.{found[1]}") if found else None
        if entry is None or isinstance(literal.parent, nodes.reference):
            continue
        uri = f"{app.builder.get_relative_uri(docname, entry.docname)}#{entry.node_id}"
        link = nodes.reference("", "", internal=True, refuri=uri, classes=["name"])
        literal.replace_self(link)
        link += literal


def _skip_fields(_app: Sphinx, what: str, name: str, value: Any, *_: Any) -> bool | None:
    """Leave out the fields of dataclasses, which their docstrings describe."""
    owner = getattr(value, "__objclass__", None)
    if what == "class" and dataclasses.is_dataclass(owner):
        return any(each.name == name for each in dataclasses.fields(owner)) or None
    return None if inspect.isroutine(value) or inspect.isdatadescriptor(value) else True


def _keep_colons(_app: Sphinx, what: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Keep the first line of a property: napoleon takes the words before a colon there as its type."""
    found = next((each for each in lines if each.startswith(":type: ")), None)
    if what in {"attribute", "property"} and found is not None:
        lines.remove(found)
        lines[0] = f"{found.removeprefix(':type: ')}: {lines[0]}"


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the handlers above, and call attributes what Python calls them."""
    next(each for each in PyObject.doc_field_types if each.name == "variable").label = "Attributes"
    app.connect("doctree-resolved", _link_names)
    app.connect("autodoc-skip-member", _skip_fields)
    app.connect("autodoc-process-docstring", _keep_colons, priority=600)  # after napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
