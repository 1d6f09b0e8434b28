"""A connector of the shape of vLLM's KVConnectorBase_V1 (version 1) over a stemma.PageStore.

Whole pages of prompts are saved by their chained keys and loaded by whoever asks for the same tokens in the same
namespace, in this process or, from a disk store, in a later one. The scheduler's half and the worker's half are one
class; `role` says which is used, as in vLLM. KV caches are tensors of shape [2, pages, page_size, heads, head_dim] a
layer (K and V first), or [pages, 2, page_size, heads, head_dim] with pages_first=True.

A load that fails is reported by get_block_ids_with_load_errors, and its pages are then computed: a vLLM that would end the
request instead (kv_load_failure_policy) is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import time
from typing import Any, Callable, Optional

import torch

from . import _stemma
from ._stores import check_page_fits, empty_store, open_store
from .errors import Error, InvalidArgumentError, UnsupportedError

try:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata
except ImportError:

    class KVConnectorMetadata:
        """Stands for vLLM's, where that is not installed; so does the next."""

    class KVConnectorBase_V1:
        def __init__(self, vllm_config: Any = None, role: Any = None, kv_cache_config: Any = None):
            self._connector_metadata: Optional[KVConnectorMetadata] = None

        def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
            self._connector_metadata = connector_metadata

        def clear_connector_metadata(self) -> None:
            self._connector_metadata = None

        def _get_connector_metadata(self) -> KVConnectorMetadata:
            return self._connector_metadata


@dataclasses.dataclass
class PageMoves:
    """Pages of one request: keys and the engine's page ids, side by side."""

    request_id: str
    keys: list[bytes]
    block_ids: list[int]


@dataclasses.dataclass
class StemmaConnectorMetadata(KVConnectorMetadata):
    """What the scheduler tells the worker of one step."""

    loads: list[PageMoves] = dataclasses.field(default_factory=list)
    saves: list[PageMoves] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class _Seen:
    """A request that the scheduler knows: its keys, its pages so far, and how many of these are saved.

    `known_tokens`: what the engine had of it, and what is loaded here. What it begins with beyond that another connector loads.
    """

    keys: list[bytes]
    block_ids: list[int]
    saved_pages: int
    known_tokens: int
    computed_tokens: int = 0


# vLLM asks of a request that waits for room in every step, and nobody's step begins before the answer. Of a long prompt that is
# thousands of names, so that an answer is good for a while: asking takes one part of so many of the time, at most.
ASKING_SHARE = 20
PAGES_ASKED_ALWAYS = 256  # of fewer pages it is asked in every step


@dataclasses.dataclass
class _Asked:
    """Of a request that waits: what the engine had of it when it asked, its keys, and how many pages were found."""

    own_tokens: int
    prompt_tokens: int
    keys: list[bytes]
    found: int
    good_until: float


def _namespace_of(given: Any, vllm_config: Any) -> bytes:
    """What was given, as bytes or, from JSON, as hexadecimal digits; else what of the engine's configuration KV depends on."""
    if given is None:
        model, cache = (getattr(vllm_config, name, None) for name in ("model_config", "cache_config"))
        fields = [str(getattr(model, name, None)) for name in ("model", "revision", "dtype", "quantization")]
        fields += [str(getattr(cache, "cache_dtype", None))]
        # Of the model as it runs: with what was overridden, as how its positions are stretched.
        described = getattr(getattr(model, "hf_config", None), "to_json_string", None)
        fields += [] if described is None else [described()]
        return hashlib.sha256(json.dumps(fields).encode()).digest()
    try:
        digest = bytes.fromhex(given) if isinstance(given, str) else bytes(given)
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise InvalidArgumentError("namespace: must be 32 bytes, or as many as 64 hexadecimal digits")
    return digest


def _codes_of(cache_config: Any) -> bytes:
    """A part of names: tensors of codes are of bytes, whatever these mean."""
    codes = getattr(cache_config, "cache_dtype", None) or "auto"
    if codes == "auto":
        return b""
    if getattr(cache_config, "calculate_kv_scales", False):
        raise UnsupportedError("calculate_kv_scales: every engine has scales of its own then, and pages mean others in each")
    return f"/{codes}".encode()


def _check_parallel(parallel_config: Any) -> None:
    """Where ranks share a context, a page of the scheduler has the tokens of a page of each of them."""
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if (getattr(parallel_config, name, None) or 1) > 1:
            raise UnsupportedError(f"{name}: pages that several ranks have a part of the tokens of are not cached")


def _check_failures(transfer: Any) -> None:
    """Any store loses pages between a question and a load. Where vLLM does not say what then, it computes."""
    if getattr(transfer, "kv_load_failure_policy", "recompute") != "recompute":
        raise UnsupportedError('kv_load_failure_policy: "recompute" is wanted: a page that was lost would end its request')


class StemmaConnector(KVConnectorBase_V1):
    """Options are read from kv_transfer_config.kv_connector_extra_config, or given here:

    directory and bytes_max (a disk), remote and secret (Redis), or store (a stemma.PageStore); value_bytes, of one page in
    one layer;
    namespace, the digest (32 bytes, or 64 hexadecimal digits) of all that makes pages valid: model, dtype, layout. Without it
    that of the names in vllm_config, which do not say whether a model of the same name has other weights.
    Ranks keep apart by themselves, and so do layers whose pages have another shape or dtype. A page of another form is found
    and fails to load: the scheduler does not know the worker's.
    """

    # vLLM's own answer is of its role, where nothing but a hand-over brings KV to who decodes. What this one does not save is a
    # miss: so vLLM need not throw away, of a request that it preempts, the output that is on its way.
    requires_kv_delivery = False

    def __init__(self, vllm_config: Any = None, role: Any = None, kv_cache_config: Any = None, **options: Any):
        # vLLM before its third argument takes two.
        try:
            super().__init__(vllm_config, role, kv_cache_config)
        except TypeError:
            super().__init__(vllm_config, role)
        transfer = getattr(vllm_config, "kv_transfer_config", None)
        _check_failures(transfer)
        options = {**(getattr(transfer, "kv_connector_extra_config", None) or {}), **options}
        self._options = options
        cache_config = getattr(vllm_config, "cache_config", None)
        self._page_size = options.get("page_size") or getattr(cache_config, "block_size", None)
        if not self._page_size:
            raise InvalidArgumentError("page_size: is wanted where vllm_config has no block_size")
        self._namespace = _namespace_of(options.get("namespace"), vllm_config)
        self._pages_first = options.get("pages_first", False)
        self._pages = getattr(kv_cache_config, "num_blocks", None)  # of the scheduler, where vLLM says
        self._codes = _codes_of(cache_config)
        # Each rank of a model has its own part of every page, and all have the same options.
        parallel_config = getattr(vllm_config, "parallel_config", None)
        _check_parallel(parallel_config)
        self._rank = getattr(parallel_config, "rank", 0)
        self._ranks = getattr(parallel_config, "world_size", 1)
        # Steps that are planned before the outcome of a load is known, its own among them.
        scheduler_config = getattr(vllm_config, "scheduler_config", None)
        is_async = getattr(scheduler_config, "async_scheduling", False)
        self._steps_ahead = getattr(parallel_config, "pipeline_parallel_size", 1) + (1 if is_async else 0)
        self._steps = 0
        self._unsure: list[tuple[int, set[int]]] = []  # pages that are loaded, and the first step that knows the outcome
        self._emptied_at: Optional[int] = None  # after a reset, the first step at which none from before it saves any more
        self._store = options.get("store") or open_store(options)
        self._seen: dict[str, _Seen] = {}
        self._asked: dict[str, _Asked] = {}
        self._adapters = _Adapters()
        self._to_load: list[PageMoves] = []
        self._layers: dict[str, torch.Tensor] = {}
        self._forms: dict[str, bytes] = {}  # of the layers' pages
        self._failed_blocks: set[int] = set()
        self._failed_requests: set[str] = set()  # until they have finished

    # Of the scheduler.

    def _keys_of(self, request: Any) -> list[bytes]:
        """No keys for prompts with other than tokens in them: images and embeddings are not part of a key.

        None either under an adapter whose weights are not known.
        """
        if getattr(request, "mm_features", None) or getattr(request, "mm_hashes", None):
            return []
        if getattr(request, "prompt_embeds", None) is not None or request.prompt_token_ids is None:
            return []
        lora = getattr(request, "lora_request", None)
        weights = None if lora is None else self._adapters.digest(lora)
        if lora is not None and weights is None:
            return []
        digest = _request_namespace(self._namespace, request, weights)
        return _stemma.page_keys(list(request.prompt_token_ids), self._page_size, digest)

    def _part(self, rank: int) -> bytes:
        return b"" if self._ranks == 1 else b"%dof%d/" % (rank, self._ranks)

    def _name(self, key: bytes, layer: str) -> bytes:
        return key + self._part(self._rank) + layer.encode() + self._forms[layer]

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Tokens beyond num_computed_tokens that can be loaded: whole pages, and never the last token.

        A page is there once every rank has marked it: the last layer is saved last. Changes nothing that is seen outside.
        None for a request that vLLM itself finds nothing for, as where each token of its prompt is to be scored.
        """
        begin = time.monotonic()
        asked = self._asked.get(request.request_id)
        if asked is None or begin >= asked.good_until or not self._is_of(asked, request, num_computed_tokens):
            asked = self._asked[request.request_id] = self._ask(request, num_computed_tokens, begin)
        return asked.found * self._page_size, False

    def _is_of(self, asked: _Asked, request: Any, num_computed_tokens: int) -> bool:
        return (asked.own_tokens, asked.prompt_tokens) == (num_computed_tokens, _prompt_length(request))

    def _ask(self, request: Any, num_computed_tokens: int, begin: float) -> _Asked:
        keys, prompt_tokens = self._keys_of(request), _prompt_length(request)
        reads = bool(keys) and not getattr(request, "skip_reading_prefix_cache", False) and self._emptied_at is None
        loadable = (prompt_tokens - 1) // self._page_size if reads else 0
        wanted = keys[num_computed_tokens // self._page_size : loadable]
        found, end = self._stored(wanted), time.monotonic()
        # The files of an adapter are looked at each time: its weights are those of when it runs.
        is_dear = len(wanted) >= PAGES_ASKED_ALWAYS and getattr(request, "lora_request", None) is None
        good_until = end + ASKING_SHARE * (end - begin) if is_dear else begin
        return _Asked(num_computed_tokens, prompt_tokens, keys, found, good_until)

    def _stored(self, keys: list[bytes]) -> int:
        """How many pages, from the first one on, every rank has marked."""
        ranks = range(self._ranks)
        return self._store.exists([self._marker(key, rank) for key in keys for rank in ranks]) // self._ranks

    def _marker(self, key: bytes, rank: int) -> bytes:
        # The number is of the names of parts: what was marked under others could not be loaded.
        return key + self._part(rank) + b"/whole2" + self._codes

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The request has pages now: those of num_external_tokens are to be loaded, behind what the engine had.

        The request itself does not say what that was before it runs. Of that, too, the store may lack some: the answer of a
        turn before, which no prompt had, or what it has lost. It is saved then, or all behind it would never be found.
        """
        asked = self._asked.pop(request.request_id, None)
        own_tokens, keys = (0, self._keys_of(request)) if asked is None else (asked.own_tokens, asked.keys)
        block_ids, count = _block_ids(blocks), num_external_tokens // self._page_size
        had_tokens = max(own_tokens, getattr(request, "num_computed_tokens", 0))
        had = had_tokens // self._page_size
        if count > 0:
            self._to_load.append(
                PageMoves(request.request_id, keys[had : had + count], block_ids[had : had + count])
            )
        own = keys[:had]
        stored = self._stored(own)
        saved_pages = had + count if stored == len(own) else stored
        self._seen[request.request_id] = _Seen(keys, block_ids, saved_pages, had_tokens + num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> StemmaConnectorMetadata:
        """What is loaded before this step and saved after it: pages of prompts that are complete then.

        Of a request that has pages which are loaded for this step nothing is saved yet, nor of one that shares them. Where
        one did not come, on any rank, what is computed behind it is wrong on all of them, until the engine knows and
        computes anew: so nothing is saved in any step that may be planned before. A later one saves what was right.
        """
        saves, loading = [], self._note_pages(scheduler_output)
        loading.update(block_id for load in self._to_load for block_id in load.block_ids)
        if loading:
            self._unsure.append((self._steps + self._steps_ahead, loading))
        self._unsure = [entry for entry in self._unsure if entry[0] > self._steps]
        unsure = set().union(*(blocks for _, blocks in self._unsure))
        # Little has come since, and where it is more the next step goes on: no step waits longer than for another call.
        if self._emptied_at is not None and self._steps >= self._emptied_at and self._empty(lambda store: store.clear()):
            self._emptied_at = None
        self._steps += 1
        for request_id, tokens in scheduler_output.num_scheduled_tokens.items():
            seen = self._seen.get(request_id)
            if seen is None or self._emptied_at is not None:
                continue
            whole = min((seen.computed_tokens + tokens) // self._page_size, len(seen.keys), len(seen.block_ids))
            # Most only decode: the pages of all of them, of which there are many, are not looked at in every step.
            if whole > seen.saved_pages and unsure.isdisjoint(seen.block_ids):
                part = slice(seen.saved_pages, whole)
                saves.append(PageMoves(request_id, seen.keys[part], seen.block_ids[part]))
                seen.saved_pages = whole
        loads, self._to_load = self._to_load, []
        return StemmaConnectorMetadata(loads, saves)

    def _note_pages(self, scheduler_output: Any) -> set[int]:
        """Where requests are now. Which pages another connector loads for this step, beside this one."""
        begun = []
        for new in getattr(scheduler_output, "scheduled_new_reqs", []):
            seen = self._seen.get(new.req_id)
            if seen is not None:
                seen.block_ids = _block_ids(new.block_ids)
                seen.computed_tokens = new.num_computed_tokens
                begun.append(seen)
        cached = getattr(scheduler_output, "scheduled_cached_reqs", None)
        for i, request_id in enumerate(getattr(cached, "req_ids", [])):
            seen = self._seen.get(request_id)
            if seen is not None:
                is_resumed = _is_resumed(cached, i)
                if cached.new_block_ids[i] is not None:
                    new_ids = _block_ids(cached.new_block_ids[i])
                    seen.block_ids = new_ids if is_resumed else seen.block_ids + new_ids
                seen.computed_tokens = cached.num_computed_tokens[i]
                begun += [seen] if is_resumed else []
        parts = [slice(one.known_tokens // self._page_size, one.computed_tokens // self._page_size) for one in begun]
        return {block_id for seen, part in zip(begun, parts) for block_id in seen.block_ids[part]}

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, Optional[dict[str, Any]]]:
        """Nothing of it is under way: its pages may be freed at once."""
        self._seen.pop(request.request_id, None)
        self._asked.pop(request.request_id, None)
        return False, None

    def reset_cache(self) -> bool:
        """Empties the store, of whoever shares it, as after new weights; whether it did. For vLLM's reset_prefix_cache.

        Of requests that go on no page is saved any more. Steps that are under way save theirs still: until they have ended,
        nothing is found and nothing saved, and then the store is emptied once more.
        """
        self._seen.clear()
        self._asked.clear()
        if self._steps_ahead > 1:
            self._emptied_at = self._steps + self._steps_ahead - 1
        return self._empty(empty_store)

    def _empty(self, how: Callable[[Any], None]) -> bool:
        try:
            how(self._store)
        except Error:  # as of a server that does not answer
            return False
        return True

    def update_connector_output(self, connector_output: Any) -> None:
        pass

    def take_events(self) -> tuple:
        return ()

    # Of the worker.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        for name, layer in kv_caches.items():
            if not self._pages_first and (layer.dim() < 3 or layer.shape[0] != 2):
                raise InvalidArgumentError(
                    f"{name}: a KV cache of shape {tuple(layer.shape)} has not K and V first: pages_first is wanted"
                )
        self._layers = dict(kv_caches)
        # As many bytes may mean something else: heads before tokens, another type of numbers.
        for name, layer in kv_caches.items():
            page = self._page(layer, 0)
            self._check_page(name, page, layer.shape[0 if self._pages_first else 1])
            self._forms[name] = f"/{page.dtype}/{'x'.join(map(str, page.shape))}".encode() + self._codes

    def _check_page(self, name: str, page: torch.Tensor, pages: int) -> None:
        """Where kernels know smaller pages only, vLLM makes the tensor of these: its scheduler's ids mean others of it.

        There are more of them then, which tells it also where there are as many heads as a page should have tokens.
        """
        if self._pages and self._pages != pages:
            raise InvalidArgumentError(f"{name}: has {pages} pages where vLLM's scheduler has {self._pages}")
        says_tokens = self._pages_first or page.dim() > 2  # else a page of K is a row
        if says_tokens and self._page_size not in page.shape[-3:-1]:
            raise InvalidArgumentError(f"{name}: {tuple(page.shape)} has not {self._page_size} tokens a page")
        check_page_fits(self._options, page.numel() * page.element_size())

    def _page(self, layer: torch.Tensor, block_id: int) -> torch.Tensor:
        return layer[block_id] if self._pages_first else layer[:, block_id]

    def start_load_kv(self, forward_context: Any = None, **_: Any) -> None:
        """Copies what the metadata names into the caches. From the first page that fails on, none of its request.

        A page that lost a part is nobody's any more: it is saved anew by whoever computes it next.
        """
        for load in self._get_connector_metadata().loads:
            for at, (key, block_id) in enumerate(zip(load.keys, load.block_ids)):
                if not all(self._load(name, key, block_id) for name in self._layers):
                    self._failed_blocks.update(load.block_ids[at:])
                    self._failed_requests.add(load.request_id)
                    self._forget(key)
                    break

    def _forget(self, key: bytes) -> None:
        self._store.remove(self._marker(key, self._rank))
        for name in self._layers:
            self._store.remove(self._name(key, name))

    def _load(self, layer_name: str, key: bytes, block_id: int) -> bool:
        page = self._page(self._layers[layer_name], block_id)
        value = self._store.get(self._name(key, layer_name))
        if value is None or len(value) != page.numel() * page.element_size():
            return False
        page.copy_(torch.frombuffer(bytearray(value), dtype=page.dtype).view(page.shape))
        return True

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads are done when start_load_kv returns."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any = None, **_: Any) -> None:
        """Saves nothing yet: a step that replays a full CUDA graph, as one that only decodes does, never comes here."""

    def wait_for_save(self) -> None:
        """Saves the pages that the metadata names, of every layer, and marks them: only these are found."""
        for save in self._trusted_saves():
            for key, block_id in zip(save.keys, save.block_ids):
                self._save(key, block_id)

    def _save(self, key: bytes, block_id: int) -> None:
        for name, layer in self._layers.items():
            page = self._page(layer, block_id).contiguous().cpu()
            self._store.put(self._name(key, name), page.view(torch.uint8).flatten().numpy())
        names = [self._name(key, name) for name in self._layers]
        if self._store.exists(names) == len(names):
            self._store.put(self._marker(key, self._rank), b"")

    def _trusted_saves(self) -> list[PageMoves]:
        """Not those of a request of which a load failed: a step may be planned before that is known."""
        saves = self._get_connector_metadata().saves
        return [save for save in saves if save.request_id not in self._failed_requests]

    def get_finished(self, finished_req_ids: set[str]) -> tuple[Optional[set[str]], Optional[set[str]]]:
        """Nothing is asynchronous."""
        self._failed_requests -= finished_req_ids
        return None, None

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Pages that were to be loaded and were not, since the last call."""
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def handle_preemptions(self, preempted_req_ids: Any) -> None:
        pass

    def shutdown(self) -> None:
        self._store.close()


class _Adapters:
    """Digests of adapters' files: what KV depends on beside the model. They are read once, and again when they change."""

    def __init__(self):
        self._read: dict[str, tuple[list, str]] = {}  # of a path, what its files looked like and their digest
        self._loaded: dict[tuple, str] = {}

    def digest(self, lora: Any) -> Optional[str]:
        """None where the files cannot be read, or have changed under the engine: nobody knows which weights it has then."""
        path = getattr(lora, "lora_path", None)
        try:
            found = self._digest_of(path) if path else None
        except OSError:
            return None
        engines_name = (getattr(lora, "lora_int_id", None), getattr(lora, "lora_name", None), path)
        return found if found is None or self._loaded.setdefault(engines_name, found) == found else None

    def _digest_of(self, path: str) -> Optional[str]:
        seen = _adapter_files(path)
        if path not in self._read or self._read[path][0] != seen:
            digests = [(pathlib.Path(file).name, _file_digest(file)) for file, *_ in seen]
            if _adapter_files(path) != seen:  # being written
                return None
            self._read[path] = seen, hashlib.sha256(json.dumps(digests).encode()).hexdigest()
        return self._read[path][1]


def _adapter_files(path: str) -> list[tuple]:
    """What an adapter consists of: names, and what tells that a file is another now. OSError without weights."""
    directory = pathlib.Path(os.path.expanduser(path))
    weights = sorted(directory.glob("adapter_model*")) + sorted(directory.glob("new_embeddings*"))
    if not weights:
        raise FileNotFoundError(path)
    stats = [(str(file), file.stat()) for file in [*directory.glob("adapter_config.json"), *weights]]
    return [(file, stat.st_size, stat.st_mtime_ns, stat.st_ino) for file, stat in stats]


def _file_digest(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _request_namespace(digest: bytes, request: Any, weights: Optional[str]) -> bytes:
    """The namespace of a request: of its salt and its adapter too. Framed, so that no two lists of fields agree."""
    lora = getattr(request, "lora_request", None)
    fields = {"cache_salt": getattr(request, "cache_salt", None), "lora": getattr(lora, "lora_name", None)}
    fields["lora_path"], fields["lora_weights"] = getattr(lora, "lora_path", None), weights
    present = {name: value for name, value in fields.items() if value is not None}
    if not present:
        return digest
    return hashlib.sha256(digest + json.dumps(present, sort_keys=True).encode()).digest()


def _prompt_length(request: Any) -> int:
    return 0 if request.prompt_token_ids is None else len(request.prompt_token_ids)


def _is_resumed(cached: Any, at: int) -> bool:
    """Whether the request was preempted and has all its pages anew."""
    if hasattr(cached, "resumed_req_ids"):
        return cached.req_ids[at] in cached.resumed_req_ids
    resumed = getattr(cached, "resumed_from_preemption", None)
    return bool(resumed) and bool(resumed[at])


def _block_ids(blocks: Any) -> list[int]:
    """Page ids of the one group of caches, from whichever form vLLM hands them over in."""
    if hasattr(blocks, "get_block_ids"):
        blocks = blocks.get_block_ids()
    if isinstance(blocks, tuple) or (blocks and isinstance(blocks[0], (list, tuple))):
        if len(blocks) != 1:
            raise InvalidArgumentError("one group of KV caches is wanted: hybrid models are not supported")
        blocks = blocks[0]
    return list(blocks)
