"""After the answer: what the turn leaves in the store, and what it teaches about the model.

Keeps law 5 (nothing is lost): the client's new messages and our collected answer become nodes of the
session's tree, named by their chain hashes, so that writing a turn twice writes it once. The write comes
after the client has its answer and is not stopped by its leaving; one that fails is healed by the next body.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.budget import MESSAGE_TOKENS
from proxy.core.completion import Answer, StreamCollector, read_completion
from proxy.core.identity import extend, read_message
from proxy.core.messages import Content
from proxy.core.records import Node, Session, Turn
from proxy.engine.background import Background
from proxy.engine.exchange import Prepared
from proxy.engine.models import Models
from proxy.engine.recognition import Recognition
from proxy.errors import StoreUnavailable
from proxy.ports import Clock, SessionStore, TokenCounter, UpstreamResponse
from proxy.telemetry import Metrics, log_warning

_DAY = 86_400.0
_ANSWER_BYTES = 64 * 2**20


class Collector:
    """Reads along while an answer goes by; it never holds a byte up, and gives up where it cannot read."""

    def __init__(self, response: UpstreamResponse) -> None:
        headers = {name.lower(): value.lower() for name, value in response.headers}
        self.is_stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")
        self.is_readable = headers.get(b"content-encoding", b"identity") == b"identity"
        self._stream = StreamCollector()
        self._body = bytearray()

    def feed(self, chunk: bytes) -> None:
        """See a chunk of the body."""
        if not self.is_readable:
            return
        if self.is_stream:
            self._stream.feed(chunk)
        elif len(self._body) <= _ANSWER_BYTES:
            self._body += chunk

    @property
    def is_truncated(self) -> bool:
        """Whether a stream ended without saying that it was over."""
        return self.is_stream and self.is_readable and self._stream.truncated

    def answer(self) -> Answer:
        """What was said so far."""
        if not self.is_readable:
            return Answer()
        return self._stream.answer() if self.is_stream else read_completion(bytes(self._body))


@dataclass(frozen=True, slots=True)
class _Placed:
    """Our answer at its place in the chain."""

    hash: bytes
    parent: bytes
    raw: bytes
    content: Content
    is_complete: bool


class Recorder:
    """Writes turns down."""

    def __init__(
        self,
        recognition: Recognition,
        background: Background,
        store: SessionStore,
        counter: TokenCounter,
        models: Models,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._recognition = recognition
        self._background = background
        self._store = store
        self._counter = counter
        self._models = models
        self._clock = clock
        self._metrics = metrics

    def begin(self, prepared: Prepared, collector: Collector) -> None:
        """Record a turn whose answer is over, or was cut off, without keeping anybody waiting.

        The answer's place is known at once: a quick client sends it back before the store has it.
        """
        answer = collector.answer()
        placed = _placed(prepared, answer)
        if placed is not None and prepared.recognised.is_headerless:
            self._recognition.answered(prepared.recognised.key, placed.hash)
        self._background.run(self._record(prepared, answer, placed))

    async def _record(self, prepared: Prepared, answer: Answer, placed: _Placed | None) -> None:
        if answer.complete and answer.choices == 1:
            case = prepared.case
            self._models.learn_usage(case.tenant, case.model, prepared.sent_tokens, answer.usage)
        self._count(prepared, answer)
        key = prepared.recognised.key
        try:
            turn = await self._turn(prepared, placed)
            await self._store.record(key, turn, self._ttl(prepared))
        except Exception as error:
            self._recognition.mark_lost(key)
            self._metrics.lost_turns.inc()
            if not isinstance(error, StoreUnavailable):
                raise
            log_warning("a turn could not be written", code=error.code)

    def _ttl(self, prepared: Prepared) -> float:
        """A session without a header that was seen for one turn lives a day."""
        ttl = prepared.policy.store.ttl
        is_first = prepared.recognised.is_headerless and prepared.recognised.found.session is None
        return min(ttl, _DAY) if is_first else ttl

    def _count(self, prepared: Prepared, answer: Answer) -> None:
        real = prepared.budget.real
        self._metrics.tokens.labels(kind="received").inc(real(prepared.case.counted))
        self._metrics.tokens.labels(kind="sent").inc(real(prepared.sent_tokens))
        if answer.usage is not None and answer.usage.cached_tokens:
            self._metrics.cached_tokens.inc(answer.usage.cached_tokens)

    async def _turn(self, prepared: Prepared, placed: _Placed | None) -> Turn:
        nodes = self._new_nodes(prepared)
        last = await self._answer_node(prepared, placed) if placed else None
        if last is not None:
            nodes.append(last)
        return Turn(
            session=self._session(prepared, last),
            nodes=tuple(nodes),
            advances_tip=last is not None and last.complete,
            headerless=prepared.recognised.is_headerless,
        )

    def _new_nodes(self, prepared: Prepared) -> list[Node]:
        """The messages after the deepest one that the store knows."""
        chain, known = prepared.case.chain, prepared.recognised.found.known
        first = chain.hashes.index(known) + 1 if known is not None else 0
        now = self._clock.now()
        return [
            Node(
                hash=chain.hashes[place],
                parent=chain.hashes[place - 1] if place else prepared.history.root,
                raw=chain.raws[place],
                tokens=chain.tokens[place],
                at=now,
                sequence=place,
            )
            for place in range(first, len(chain))
        ]

    async def _answer_node(self, prepared: Prepared, placed: _Placed) -> Node:
        (tokens,) = await self._counter.count_all([placed.content.countable()])
        return Node(
            hash=placed.hash,
            parent=placed.parent,
            raw=placed.raw,
            tokens=MESSAGE_TOKENS + tokens,
            at=self._clock.now(),
            sequence=len(prepared.case.chain),
            answer=True,
            complete=placed.is_complete,
        )

    def _session(self, prepared: Prepared, last: Node | None) -> Session:
        now, verdict, budget, case = self._clock.now(), prepared.verdict, prepared.budget, prepared.case
        recognised = prepared.recognised
        before = recognised.found.session
        if before is not None and recognised.found.known is None:
            return replace(before, updated=now)  # a line of its own, such as a request for a title
        return Session(
            name=recognised.name,
            tenant=recognised.tenant,
            created=before.created if before else now,
            updated=now,
            tip=last.hash if last is not None else b"",
            head=prepared.history.head,
            lane=case.lane,
            model=case.model,
            policy=prepared.policy.name,
            stage=verdict.stage.value,
            tokens=budget.real(prepared.sent_tokens),
            full_tokens=budget.real(case.counted),
            budget=budget.tokens,
            ratio=budget.ratio,
            head_tokens=budget.head,
            exchanges=_exchanges(prepared) + _is_final(last),
        )


def _placed(prepared: Prepared, answer: Answer) -> _Placed | None:
    """Place an answer; None where there is nothing to keep, or there are several to choose from."""
    if answer.message is None or answer.choices != 1:
        return None
    content, hashes = Content.of(answer.message), prepared.case.chain.hashes
    parent = hashes[-1] if hashes else prepared.history.root
    place = extend(parent, read_message(content).identity)
    return _Placed(place, parent, answer.message, content, answer.complete)


def _exchanges(prepared: Prepared) -> int:
    """Final answers in the chain: assistant messages without tool calls."""
    return sum(message.role == "assistant" and not message.calls for message in prepared.case.chain.messages)


def _is_final(node: Node | None) -> bool:
    return node is not None and node.complete and not any(Content.of(node.raw).tool_calls())
