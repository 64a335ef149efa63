"""Numba's dispatcher with shorter compilation and another cache: one file per kernel and argument types.

It stands on inner classes of Numba, which may change with any release. If they fail, `Kernel.compile` lets `numba.njit`
compile, by `lstd._kernels.public_numba`.

The folder of the cache is ``$LSTD_CACHE_DIR``, else ``lstd`` below the user's cache folder; an empty ``LSTD_CACHE_DIR``
turns the cache off. The name of a file holds a digest of what its code depends on, among it the sources of the kernel
and of the kernels that it calls: Numba's own cache looks at the former only, and mixes up types that two processes
compile at once. If the cache fails, kernels are compiled again. Deleting the folder is always safe.
"""

# mypy: disable-error-code="attr-defined,no-untyped-call"
from __future__ import annotations

import gc
import hashlib
import logging
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

import numba
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder, Flags, compile_extra
from numba.core.cpu import CPUContext
from numba.core.registry import CPUDispatcher
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.core.types import unliteral
from numba.core.typing import make_concrete_template
from numba.core.untyped_passes import (
    FindLiterallyCalls,
    InlineClosureLikes,
    InlineInlinables,
    IRProcessing,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    RewriteDynamicRaises,
    WithLifting,
)
from numba.misc.appdirs import AppDirs

from lstd._kernels.public_numba import OPTIONS, announce_njit, digest_of, njit_kernel
from lstd.errors import CompilationCacheWarning

# Variables of Numba that change no generated code and differ between a process and its workers.
_HARMLESS = ("NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "NUMBA_CACHE_")
# Passes for what no kernel has, such as closures and `with`, or that repeat what the first one does.
_NEEDLESS = (
    IRProcessing,
    WithLifting,
    InlineClosureLikes,
    RewriteDynamicRaises,
    MakeFunctionToJitFunction,
    InlineInlinables,
    FindLiterallyCalls,
    LiteralUnroll,
    LiteralPropagationSubPipelinePass,
)
_failures: list[Exception] = []  # of the inner classes
_failures_of_cache: list[Exception] = []


class _Context(CPUContext):  # type: ignore[misc,unused-ignore]
    """Numba's context of code for this processor, without two look-ups that it makes for each array and variable."""

    @classmethod
    def of(cls, context: Any) -> Self:
        """Return a context with the attributes of another one."""
        copied = cls.__new__(cls)
        vars(copied).update(vars(context))
        return copied

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        """Return the function that builds the code of a call.

        For each array, Numba looks for one that makes it an array, as for objects that are like arrays. There is none,
        and it would look through all registries of functions again.
        """
        return super().get_function(fn, sig, _firstcall and fn != "__array__")

    def get_abi_sizeof(self, ty: Any) -> int:
        return _size_of(ty, self.target_data)


@cache
def _size_of(of_type: Any, target_data: Any) -> int:
    """Return the size of a type in memory; LLVM reads a module to tell it."""
    size: int = of_type.get_abi_size(target_data)
    return size


class _NoAlias(CompilerBase):  # type: ignore[misc,unused-ignore]
    """Numba's usual pipeline for kernels whose array arguments do not overlap where they write.

    Otherwise each vector loop first compares the addresses of all its arrays, which takes 15 % of the time of the
    one-hot kernel of the sweep and a third of that of the dense one.
    """

    def define_pipelines(self) -> list[Any]:
        self.state.flags.noalias = True
        self.state.targetctx = _Context.of(self.state.targetctx)
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [(each, what) for each, what in pipeline.passes if each not in _NEEDLESS]
        pipeline.finalize()
        return [pipeline]


class _Part(_NoAlias):
    """The pipeline for a kernel that another one calls: the caller's code takes it in, and nothing else calls it.

    Wrappers for Python, machine code and a file of the cache for each such kernel would take half of the time.
    """

    def define_pipelines(self) -> list[Any]:
        flags = self.state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc,unused-ignore]
    """Code to be linked into that of a caller, and to be optimised with it, but for loops that call no kernel."""

    def _optimize_final_module(self) -> None:
        if not self._linking_libraries:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class Kernel(CPUDispatcher):  # type: ignore[misc,unused-ignore]
    """Numba's dispatcher, but that kernels which call this one take it in as a part.

    Parameters
    ----------
    function : function
        Its array arguments must not overlap where it writes.
    returns_arrays : bool
        Whether it makes or returns arrays. Otherwise references to arrays are not counted, which takes 25 ns less per
        call for each array among the arguments.
    """

    def __init__(self, function: Callable[..., Any], returns_arrays: bool) -> None:
        # No kernel has an expression of whole arrays for Numba to rewrite, and none is called from C.
        options = OPTIONS | {"nopython": True, "no_rewrites": True, "no_cfunc_wrapper": True}
        if not returns_arrays:
            options["_nrt"] = False
        super().__init__(function, targetoptions=options, pipeline_class=_NoAlias)
        source = Path(function.__code__.co_filename)
        if source.is_file():  # not in a zip archive
            self._cache = _Cache(source, function.__qualname__)

    def compile(self, sig: Any) -> Any:
        """Compile for argument types or load from the cache; where the inner classes fail, by `numba.njit`."""
        if not _failures:
            try:
                with _without_collections():
                    return super().compile(sig)
            except Exception as error:  # of whatever in Numba has changed; or the types of the arguments are wrong
                failure = error
        public = public_twin(self)
        entry = public.compile(sig)  # raises what is wrong, if that is the kernel or its arguments
        if not _failures:
            announce_njit(failure)
            _failures.append(failure)
        for types, result in public.overloads.items():
            if types not in self.overloads:
                self.add_overload(result)
        return entry

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the typing of a call in another kernel; flags and numbers known then make no kernel of their own."""
        signature, args = self._compiler.fold_argument_types(args, kws)
        args = tuple(map(unliteral, args))
        return make_concrete_template(self.__name__, self.__name__, [self._part(args).signature]), signature, args, {}

    def get_overload(self, sig: Any) -> Any:
        return self._part(sig).fndesc

    def _part(self, args: tuple[Any, ...]) -> CompileResult:
        parts: dict[Any, CompileResult] = self.__dict__.setdefault("_parts", {})
        if args not in parts:
            target = self.targetdescr
            flags = Flags()
            target.options.parse_as_flags(flags, self.targetoptions)
            part = compile_extra(
                target.typing_context, target.target_context, self.py_func, args, None, flags, {}, pipeline_class=_Part
            )
            target.target_context.insert_user_function(part.fndesc, part.fndesc, [part.library])
            parts[args] = part
        return parts[args]


@contextmanager
def _without_collections() -> Iterator[None]:
    """Let Python's garbage collector wait: it would look at the compiler's many objects again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def public_twin(kernel: Kernel) -> Any:
    """Return what `numba.njit` makes of a kernel and of those that it calls."""
    names = kernel.py_func.__globals__
    called = {name: names[name] for name in kernel.py_func.__code__.co_names if isinstance(names.get(name), Kernel)}
    return njit_kernel(kernel.py_func, names | {name: public_twin(other) for name, other in called.items()})


@cache
def folder() -> Path | None:
    """Return the folder of the compiled kernels, or None if the cache is turned off."""
    usual: str = AppDirs("lstd", appauthor=False).user_cache_dir
    chosen = os.environ.get("LSTD_CACHE_DIR", usual)
    return None if not chosen or chosen.startswith("~") else Path(chosen)  # the latter where there is no home


@cache
def _announce() -> None:
    logging.getLogger("lstd").warning("lstd: compiling its kernels, some seconds at first use")


class _Cache(NullCache):  # type: ignore[misc,unused-ignore]
    """Compiled code of a kernel, by argument types."""

    def __init__(self, source: Path, name: str) -> None:
        self._source = source
        self._name = name

    def _path(self, signature: Any, codegen: Any) -> Path:
        settings = sorted(v for v in os.environ.items() if v[0].startswith("NUMBA_") and not v[0].startswith(_HARMLESS))
        key = (
            digest_of(self._source),
            digest_of(Path(__file__)),
            sys.version,
            numba.__version__,
            settings,
            str(signature),
            codegen.magic_tuple(),
        )
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:24]
        return (folder() or Path()) / f"{self._source.stem}.{self._name}-{digest}.kernel"

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Read the compiled kernel; on None, Numba compiles it and calls `save_overload`."""
        rtsys.initialize(target)  # not `refresh`, which takes 0.3 s: types and functions are needed only to compile
        if folder() is not None:
            try:
                content = self._path(signature, target.codegen()).read_bytes()
                return CompileResult._rebuild(target, *pickle.loads(content))
            except FileNotFoundError:
                pass
            except Exception as error:
                _warn_once("reading", error)
        _announce()
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write the compiled kernel, whole or not at all."""
        if folder() is None:
            return
        try:
            path = self._path(signature, result.codegen)
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as new:
                written = Path(new) / path.name
                written.write_bytes(dumps(result._reduce()))
                os.replace(written, path)
        except Exception as error:
            _warn_once("writing", error)


def _warn_once(doing: str, error: Exception) -> None:
    """Warn of the first failure only, as all kernels share the folder."""
    _failures_of_cache.append(error)
    if len(_failures_of_cache) == 1:
        warnings.warn(
            f"The cache of compiled kernels in {folder()} cannot be used ({doing} failed: {type(error).__name__}: "
            f"{error}); compiling instead, about ten seconds per start. Set LSTD_CACHE_DIR to a writable folder, or to "
            "nothing to turn the cache off.",
            CompilationCacheWarning,
            stacklevel=2,
        )
