"""ONNX models run node by node on this package's functions, in the form of ``onnx.backend.base.Backend``.

This is the plain way to run a graph, and the way ONNX's own tests come in: every node is looked up in `qkernels.registry` and called. It
prepares nothing and fuses nothing; `qwen3.onnx_graph` does, with the same `bind`. Needs the ``onnx`` extra.

>>> import numpy as np, onnx
>>> from qkernels import backend
>>> node = onnx.helper.make_node("Sigmoid", ["x"], ["y"])
>>> backend.run_node(node, [np.float32([0])])
(array([0.5], dtype=float32),)
"""
import dataclasses
import functools
import inspect

import numpy as np
import onnx
import onnx.inliner
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from qkernels import registry

__all__ = ["Call", "QKernelsBackend", "QKernelsRep", "UnsupportedError", "bind", "prepare", "run_model", "run_node", "supports_device", "unsupported"]

NEWEST_OPSET = 28  # of ai.onnx: what the registry's versions have been compared with
# operators that ONNX Runtime registers in both domains under one specification
_ALIASES = {("com.microsoft", "SimplifiedLayerNormalization"): ""}


class UnsupportedError(NotImplementedError):
    """A model with nodes that no function of this package implements; `reasons` lists them."""

    def __init__(self, reasons):
        self.reasons = tuple(reasons)
        shown = "; ".join(self.reasons[:8])
        super().__init__(f"{len(self.reasons)} unsupported: {shown}" + (f"; and {len(self.reasons) - 8} more" if len(self.reasons) > 8 else ""))


@dataclasses.dataclass(frozen=True)
class Call:
    """A node bound to the function that runs it.

    Attributes
    ----------
    kernel : registry.Kernel
    function : callable
    attributes : dict
        Keyword arguments.
    inputs : tuple of (str or None)
        Names in the operator's order; None is absent.
    outputs : tuple of str
        Names of the outputs that are asked for.
    places : tuple of int
        Which results of the function these are.
    """

    kernel: registry.Kernel
    function: object
    attributes: dict
    inputs: tuple
    outputs: tuple
    places: tuple

    def __call__(self, inputs, **options):
        """The asked-for outputs, as a tuple, for the arrays of `inputs`; `options` are `threads` and the like."""
        result = self.function(*inputs, **self.attributes, **options)
        if not isinstance(result, tuple):
            return (result,)
        return result if len(result) == len(self.places) else tuple([result[i] for i in self.places])


_READABLE = {getattr(onnx.AttributeProto, name) for name in ("TENSOR", "STRING", "STRINGS", "FLOAT", "FLOATS", "INT", "INTS")}


def _kind_name(kind):
    return onnx.AttributeProto.AttributeType.Name(kind) if kind in onnx.AttributeProto.AttributeType.values() else str(kind)


def attribute_value(attribute):
    """A node's attribute as Python and NumPy values; graphs and sparse tensors are refused."""
    kind = attribute.type
    if kind not in _READABLE:
        raise UnsupportedError([f"attribute {attribute.name}: of type {_kind_name(kind)}"])
    if attribute.ref_attr_name:
        raise UnsupportedError([f"attribute {attribute.name}: refers to {attribute.ref_attr_name!r} of a function, but the node is in none"])
    value = onnx.helper.get_attribute_value(attribute)
    if kind == onnx.AttributeProto.TENSOR:
        return numpy_helper.to_array(value)
    if kind == onnx.AttributeProto.STRING:
        return value.decode("utf-8")
    if kind == onnx.AttributeProto.STRINGS:
        return [v.decode("utf-8") for v in value]
    if kind in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.INT):
        return value
    return list(value)


@functools.cache
def _parameters(function):
    return inspect.signature(function).parameters


def accepts(function, option):
    """Whether a registered function has the keyword `option`: threads, out, outputs …"""
    return option in _parameters(function)


def _schema(op_type, opset, domain):
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


_OPTIONS = {"out", "sum_out", "outputs", "threads", "activations"}  # of our functions, no attributes of any operator
_KINDS = {int: onnx.AttributeProto.INT, float: onnx.AttributeProto.FLOAT, str: onnx.AttributeProto.STRING}


def _malformed(node, schema, parameters):
    """What of a node contradicts its operator's specification: types of attributes, numbers of inputs and outputs; or None.

    ONNX has no schema of com.microsoft's operators: there the function's own signature says it."""
    for a in node.attribute:
        if schema is not None:
            expected = int(schema.attributes[a.name].type) if a.name in schema.attributes else None
        else:
            # what is required and has no default is a number of something in all of them
            default = parameters[a.name].default if a.name in parameters else None
            expected = onnx.AttributeProto.INT if default is inspect.Parameter.empty else _KINDS.get(type(default))
        if expected is not None and a.type != expected:
            return f"attribute {a.name}: expected type {_kind_name(expected)}, got {_kind_name(a.type)}"
    if len({a.name for a in node.attribute}) != len(node.attribute):
        return "an attribute occurs twice"
    if schema is not None:
        least, most = schema.min_input, schema.max_input
        single = [f.option == onnx.defs.OpSchema.FormalParameterOption.Single for f in schema.inputs]
        missing = [n for n, a in schema.attributes.items() if a.required and n not in {b.name for b in node.attribute}]
        if not schema.min_output <= len(node.output) <= schema.max_output:
            return f"expected {schema.min_output} to {schema.max_output} outputs, got {len(node.output)}"
    else:
        places = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        single = [p.default is p.empty for p in places]
        least, most = sum(single), 2**31 if any(p.kind == p.VAR_POSITIONAL for p in parameters.values()) else len(places)
        missing = [p.name for p in parameters.values() if p.kind == p.KEYWORD_ONLY and p.default is p.empty and p.name not in {a.name for a in node.attribute}]
    if missing:
        return f"attribute {missing[0]} is missing"
    if not least <= len(node.input) <= most:
        return f"expected {least} to {most} inputs, got {len(node.input)}"
    if absent := [i for i, (name, required) in enumerate(zip(node.input, single, strict=False)) if required and not name]:
        return f"input {absent[0]} is absent, but not optional"
    return None


def bind(node, opsets):
    """The function for a node, with its attributes.

    Parameters
    ----------
    node : onnx.NodeProto
    opsets : dict of str to int
        The model's opset of each domain.

    Returns
    -------
    Call

    Raises
    ------
    UnsupportedError
        Naming the node, the operator and what is missing.
    """
    domain = "" if node.domain == "ai.onnx" else node.domain
    label = f"{domain or 'ai.onnx'} {node.op_type}" + (f" ({node.name})" if node.name else "")
    given = domain
    domain = _ALIASES.get((domain, node.op_type), domain)
    opset = opsets.get(given, 1 if given else None)
    if opset is None:
        raise UnsupportedError([f"{label}: the model names no opset of ai.onnx"])
    if not domain and opset > NEWEST_OPSET:
        raise UnsupportedError([f"{label}: opset {opset} is newer than {NEWEST_OPSET}"])
    if any(k.op_type == node.op_type and k.domain == domain for k in registry.KERNELS):
        kernel = registry.find(node.op_type, domain, opset)
        schema = _schema(node.op_type, opset, domain)
        if kernel is None or (schema is not None and schema.since_version not in kernel.versions):
            have = sorted(v for k in registry.KERNELS if k.op_type == node.op_type and k.domain == domain for v in k.versions)
            since = schema.since_version if schema is not None else opset
            raise UnsupportedError([f"{label}: version {since}, in force at opset {opset}, is not among those implemented: {have}"])
    else:
        raise UnsupportedError([f"{label}: no such operator here"])
    function = kernel.function
    parameters = _parameters(function)
    if problem := _malformed(node, schema, parameters):
        raise UnsupportedError([f"{label}: {problem}"])
    try:
        attributes = {a.name: attribute_value(a) for a in node.attribute}
    except UnsupportedError as error:
        raise UnsupportedError([f"{label}: {error.reasons[0]}"]) from None
    defaults = {}
    if schema is not None:
        defaults = {name: attribute_value(a.default_value) for name, a in schema.attributes.items() if a.default_value.name}
    known = parameters.keys() - _OPTIONS if schema is None else parameters.keys() & schema.attributes.keys()
    for name in [n for n in attributes if n not in known]:
        if name not in defaults or attributes[name] != defaults[name]:
            raise UnsupportedError([f"{label}: attribute {name} = {attributes[name]!r} is not offered"])
        del attributes[name]
    # what the version in force has for a default, said explicitly: it may not be that of the newest
    attributes = {n: v for n, v in defaults.items() if n in parameters} | attributes
    inputs = [name or None for name in node.input]
    while inputs and inputs[-1] is None:
        inputs.pop()
    places = tuple(i for i, name in enumerate(node.output) if name)
    if "outputs" in parameters:
        attributes["outputs"] = places
    elif node.op_type == "Split" and "num_outputs" not in attributes and len(inputs) < 2:
        attributes["num_outputs"] = len(node.output)
    return Call(kernel, function, attributes, tuple(inputs), tuple(n for n in node.output if n), places)


def opsets_of(model):
    """The opset of each domain that a model imports."""
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}


def unsupported(model):
    """What of a model no function of this package runs, one line for each kind of node; empty if it can be run.

    Parameters
    ----------
    model : onnx.ModelProto

    Returns
    -------
    list of str
    """
    reasons, opsets = [], opsets_of(model)
    for node in model.graph.node:
        try:
            bind(node, opsets)
        except UnsupportedError as error:
            reasons += error.reasons
    for value in (*model.graph.input, *model.graph.output):
        if value.type.WhichOneof("value") not in ("tensor_type", None):
            reasons.append(f"{value.name}: a {value.type.WhichOneof('value')}, expected a tensor")
    return list(dict.fromkeys(reasons))


class QKernelsRep(BackendRep):
    """A model that is ready to run; `QKernelsBackend.prepare` makes it."""

    def __init__(self, model):
        self._graph = graph = model.graph
        if reasons := unsupported(model):
            raise UnsupportedError(reasons)
        self._constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self._inputs = [i.name for i in graph.input if i.name not in self._constants]
        self._outputs = [o.name for o in graph.output]
        opsets = opsets_of(model)
        self._calls = [bind(node, opsets) for node in graph.node]
        known = {*self._constants, *(i.name for i in graph.input)}
        for call in self._calls:
            if missing := [n for n in call.inputs if n is not None and n not in known]:
                raise ValueError(f"{call.kernel.op_type}: input {missing[0]!r} is made by no earlier node: the graph has a cycle, or is not sorted")
            known.update(call.outputs)

    def run(self, inputs, **kwargs):
        """The model's outputs for its inputs.

        Parameters
        ----------
        inputs : sequence of arrays, or dict
            In the graph's order, or by name.
        **kwargs
            None.

        Returns
        -------
        namedtuple of ndarray
        """
        if kwargs:
            raise TypeError(f"run: no such option: {', '.join(kwargs)}")
        if not isinstance(inputs, dict):
            inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(inputs) > len(self._inputs):
                raise ValueError(f"run: inputs: expected {len(self._inputs)} arrays, got {len(inputs)}")
            inputs = dict(zip(self._inputs, inputs, strict=False))
        values = self._constants | {name: None if x is None else np.asarray(x) for name, x in inputs.items()}
        for name in self._inputs:
            if name not in values:
                raise ValueError(f"run: inputs: {name} is missing")
        for call in self._calls:
            results = call([None if n is None else values[n] for n in call.inputs])
            values.update(zip(call.outputs, results, strict=True))
        return namedtupledict("Outputs", self._outputs)(*(values[n] for n in self._outputs))


class QKernelsBackend(Backend):
    """`onnx.backend.base.Backend` over the functions of this package; the device is always the CPU."""

    @classmethod
    def is_compatible(cls, model, device="CPU", **kwargs):
        """Whether every node of a model has a function here."""
        return not unsupported(model)

    @classmethod
    def supports_device(cls, device):
        """True for "CPU"."""
        return device == "CPU" or device.startswith("CPU:")

    @classmethod
    def prepare(cls, model, device="CPU", *, expand_functions=False, check=True, **kwargs):
        """Bind a model.

        Parameters
        ----------
        model : onnx.ModelProto
            Functions of its own are inlined.
        device : str
            "CPU".
        expand_functions : bool, default False
            Operators that have no function here but a body in ONNX's specification are replaced with that body. Off, they are unsupported:
            nothing falls back in silence.
        check : bool, default True
            Run `onnx.checker` first.

        Returns
        -------
        QKernelsRep

        Raises
        ------
        UnsupportedError
            Listing every node that cannot be run.
        """
        if not cls.supports_device(device):
            raise ValueError(f"prepare: device: expected CPU, got {device!r}")
        if kwargs:
            raise TypeError(f"prepare: no such option: {', '.join(kwargs)}")
        if check:
            super().prepare(model, device)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        if expand_functions and (missing := _expandable(model)):
            model = onnx.inliner.inline_selected_functions(model, missing, exclude=False, inline_schema_functions=True)
        return QKernelsRep(model)

    @classmethod
    def run_model(cls, model, inputs, device="CPU", **kwargs):
        """`prepare` and run."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node, inputs, device="CPU", outputs_info=None, *, opset_version=None, **kwargs):
        """Run one node on arrays.

        Parameters
        ----------
        node : onnx.NodeProto
        inputs : sequence of arrays, or dict
            For the node's inputs that are not absent.
        device : str
        outputs_info : ignored
        opset_version : int, optional
            Of the node's domain; by default the newest.

        Returns
        -------
        tuple of ndarray
        """
        if not cls.supports_device(device):
            raise ValueError(f"run_node: device: expected CPU, got {device!r}")
        domain = "" if node.domain == "ai.onnx" else node.domain
        call = bind(node, {domain: opset_version or (1 if domain else NEWEST_OPSET)})
        names = [n for n in node.input if n]
        values = inputs if isinstance(inputs, dict) else dict(zip(names, inputs, strict=True))
        return call([None if n is None else values[n] for n in call.inputs])


def _expandable(model):
    """(domain, op_type) of the nodes without a function here whose specification has a body."""
    found, opsets = [], opsets_of(model)
    for node in model.graph.node:
        try:
            bind(node, opsets)
        except UnsupportedError:
            schema = _schema(node.op_type, opsets.get(node.domain, 1), node.domain)
            if schema is not None and (schema.has_function or schema.has_context_dependent_function):
                found.append((node.domain, node.op_type))
    return list(dict.fromkeys(found))


prepare = QKernelsBackend.prepare
run_model = QKernelsBackend.run_model
run_node = QKernelsBackend.run_node
supports_device = QKernelsBackend.supports_device
is_compatible = QKernelsBackend.is_compatible
