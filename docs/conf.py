"""Sphinx: `make docs`."""
from importlib.metadata import version as installed_version

project = "qkernels"
copyright = "the qkernels contributors"
version = release = installed_version("qkernels")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.intersphinx", "numpydoc", "myst_parser"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
# No network is needed to build: other projects' references stay plain text where their inventories cannot be had.
intersphinx_mapping = {}

html_theme = "pydata_sphinx_theme"
html_title = f"qkernels {version}"
html_theme_options = {"navigation_with_keys": False, "show_prev_next": False, "secondary_sidebar_items": ["page-toc"]}
html_sidebars = {"index": []}


def write_reference():
    """generated/api.rst, the lists of the reference, from the registry: nothing to add by hand."""
    import pathlib

    import qkernels
    from qkernels import registry
    classes = [k.name for k in registry.KERNELS if isinstance(k.function, type)] + ["KVCache"]
    kernels = [k.name for k in registry.KERNELS if not k.layout and k.name not in classes]
    layout = [k.name for k in registry.KERNELS if k.layout]
    runtime = [name for name in qkernels.__all__ if name not in {*classes, *kernels, *layout, "contrib"}]
    text = ("Reference\n=========\n\nEvery function with its shapes, errors and an example; :doc:`/operators` is the overview by operator.\n\n"
            ".. currentmodule:: qkernels\n")
    for title, names in (("Kernels", [*kernels, "sampling.candidates"]), ("Prepared weights and caches", classes), ("Layout", layout), ("Runtime", runtime)):
        text += f"\n{title}\n{'-' * len(title)}\n\n.. autosummary::\n   :toctree:\n\n" + "".join(f"   {name}\n" for name in sorted(names))
    path = pathlib.Path(__file__).parent / "generated/api.rst"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


write_reference()
