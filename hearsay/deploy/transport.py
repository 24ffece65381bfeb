"""Messages between agents over Eclipse Zenoh, peer to peer: no broker, no discovery, nothing
off the graph.

Keys. Agent j of a run publishes its message of round k on `hearsay/<run>/<j>/<k>`, answers queries
for `hearsay/<run>/<j>/<k>` (a message that somebody missed), `hearsay/<run>/<j>/hello` (who it is)
and `hearsay/<run>/<j>/done/<i>` (i, who hears j, says that it is done), and is present while its
liveliness token `hearsay/<run>/<j>/alive` is. Where noise is shared it also answers for
`hearsay/<run>/<j>/keys` and `hearsay/<run>/<j>/keys-<i>`, and publishes on the first (gossip.py).

Links. Zenoh peers never forward what another peer sent, so a message reaches exactly those who
are connected to its sender and subscribed to it. One end of each edge connects, the one whose name
sorts first: a second link between the same peers would only be refused.

Trust. With credentials every link is mutual TLS, and Zenoh's access control reads the common name
of the certificate at the other end: over bob's link only `hearsay/<run>/bob/*` comes in, and only
an agent named in `heard_by` may subscribe to my messages or fetch them, and each only says of
itself that it is done. Host names are checked against the certificate as well, but an agent is its
common name. Without credentials anyone who reaches the port can speak and listen.

This is the only file that imports zenoh.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import zenoh

from hearsay import _validate as require
from hearsay.deploy.links import (
    OBSERVER,
    WORD,
    Credentials,
    Peer,
    access_rules,
    neighbours_of,
    session_config,
    valid_name,
)

CLOSE_SECONDS, CLOSER = 3.0, "hearsay-close-at-exit"
LAST_SECONDS = 60.0  # longer than a lease, after which Zenoh gives a silent peer up
_closers: dict[zenoh.Session, _Closer] = {}
_guard = threading.Lock()


class Transport:
    """One agent's place in the network.

    `on_message(sender, round_text, payload)`, `outbox(round)` and `hello(what)` run on Zenoh's
    threads, one per neighbour heard and one for queries, so they may run at the same time as each
    other. They must be quick: once 256 messages wait for one, the link stops, and its sender with
    it. `hello` may return None for what it does not know; it is asked for "hello", for other words,
    and for "done/<name>", which under TLS only that agent can ask. `on_link` is called when a
    neighbour has come or gone.

    What is refused is counted in `refused`, by reason: "oversized", "unexpected" (a pattern for a
    key, a deletion, a reply to another question) and "error" (a callback raised; `last_error` is
    the last such exception). What the access control drops, and messages more than twice too long,
    never get as far as here and are not counted.
    """

    def __init__(
        self,
        run: str,
        me: Peer,
        hears: Sequence[Peer],
        heard_by: Sequence[Peer],
        credentials: Credentials | None,
        *,
        on_message: Callable[[str, str, bytes], None],
        outbox: Callable[[int], bytes | None],
        hello: Callable[[str], bytes | None],
        largest: int,
        on_link: Callable[[], None] = lambda: None,
    ):
        self.run, self.me = valid_name("run", run), me
        self.hears, self.heard_by = tuple(p.name for p in hears), tuple(p.name for p in heard_by)
        neighbours = neighbours_of(me, hears, heard_by)
        self.neighbours = tuple(sorted(neighbours))
        self.largest = require.count("largest", largest)
        self.refused: Counter[str] = Counter()
        self.last_error: Exception | None = None
        self._on_message, self._outbox, self._hello, self._on_link = (
            on_message,
            outbox,
            hello,
            on_link,
        )
        self._lock, self._alive, self._closed = threading.Lock(), set[str](), False
        self._answering, self._answered = 0, threading.Condition()
        self._met: Counter[str] = Counter()

        connect = [p.endpoint for name, p in neighbours.items() if me.name < name]
        # Zenoh drops what is longer than this as its fragments arrive, which bounds what a
        # neighbour can make us hold.
        config = session_config(
            [me, *neighbours.values()],
            [me.endpoint],
            connect,
            credentials,
            2 * self.largest + 65536,
        )
        if credentials is not None:
            credentials.verify(me.name, me.host)
            config["access_control"] = access_rules(run, me.name, self.hears, self.heard_by)
        self._session = _open(config, me.endpoint)
        try:
            self._subscribers = [self._subscribe(name) for name in self.hears]
            self._subscribed = [str(subscriber.key_expr) for subscriber in self._subscribers]
            live = self._session.liveliness()
            self._watchers = [
                live.declare_subscriber(self._key(name, "alive"), self._watch(name), history=True)
                for name in self.neighbours
            ]
            answers = ["*", *(f"done/{name}" for name in self.heard_by)]
            self._queryables = [
                self._session.declare_queryable(
                    self._key(me.name, what), self._answer, complete=True
                )
                for what in answers
            ]
            # Last, so that whoever sees this agent alive can already ask it.
            self._token = live.declare_token(self._key(me.name, "alive"))
        except BaseException:
            self.close()
            raise

    def publish(self, round: int, payload: bytes) -> None:
        """Send to everyone who hears me.

        Blocks while the queue to a neighbour is full; one that takes nothing for a whole lease
        loses its link instead.
        """
        self._put(str(require.count("round", round, 0)), payload)

    def tell(self, what: str, payload: bytes) -> None:
        """Send something that is no message of a round to everyone who hears me, under a word of
        its own; nobody can ask for it again.
        """
        self._put(what, payload)

    def _put(self, what: str, payload: bytes) -> None:
        if len(payload) > self.largest:
            require.fail("payload", f"at most {self.largest} bytes", f"{len(payload)} bytes")
        key, session = self._key(self.me.name, what), self._opened()
        try:
            session.put(
                key, payload, congestion_control=zenoh.CongestionControl.BLOCK, express=True
            )
        except zenoh.ZError as error:
            raise OSError(f"{key} cannot be published: {_reason(error)}") from None

    def fetch(self, agent: str, round: int, timeout: float) -> bytes | None:
        """The message of a round from its sender's outbox;
        None, at once, if the sender is away or no longer has it.
        """
        return self.ask(agent, str(require.count("round", round, 0)), timeout)

    def ask(self, agent: str, what: str, timeout: float) -> bytes | None:
        """What `agent` answers to a query for `what`, such as "hello";
        None if it is away or has no answer.
        """
        key = self._question(agent, what)
        return _ask(
            self._opened(), key, self.largest, require.positive("timeout", timeout), self._refuse
        )

    def inquire(
        self,
        agent: str,
        what: str,
        timeout: float,
        answered: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        """The same without waiting: `answered` is called with every good answer, and then `ended`,
        on a thread of Zenoh's.

        It ends when all have answered or said that they have no answer, when their link is lost, or
        when the time is up.
        """
        key, session = self._question(agent, what), self._opened()

        def heard(reply: zenoh.Reply) -> None:
            try:
                if (answer := _checked(reply, key, self.largest, self._refuse)) is not None:
                    answered(answer)
            except Exception as error:
                self._refuse("error", error)

        _get(
            session,
            key,
            require.positive("timeout", timeout),
            zenoh.handlers.Callback(heard, ended),
        )

    def _question(self, agent: str, what: str) -> str:
        require.one_of("agent", agent, self.neighbours)
        if not isinstance(what, str) or not (
            WORD.fullmatch(what) or what == f"done/{self.me.name}"
        ):
            require.fail(
                "what", f'1 to 128 letters, digits, _ or -, or "done/{self.me.name}"', what
            )
        return self._key(agent, what)

    def alive(self) -> set[str]:
        """Neighbours that are connected and present now."""
        with self._lock:
            return set(self._alive)

    def met(self, name: str) -> int:
        """How often that neighbour has come:
        a message that was under way when its link broke is lost.
        """
        with self._lock:
            return self._met[name]

    def subscribed(self) -> list[str]:
        """The keys whose messages this process asked for."""
        return list(self._subscribed)

    def close(self) -> None:
        """Leave the network; bounded in time, and harmless when repeated."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        # An answer may be what lets both sides end, and is lost with the session.
        with self._answered:
            self._answered.wait_for(lambda: not self._answering, CLOSE_SECONDS)
        _close(self._session)
        with self._lock:
            self._alive.clear()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _key(self, agent: str, what: str) -> str:
        return f"hearsay/{self.run}/{agent}/{what}"

    def _opened(self) -> zenoh.Session:
        if self._closed:
            raise OSError(f"the transport of {self.me.name} is closed")
        return self._session

    def _refuse(self, reason: str, error: Exception | None = None) -> None:
        with self._lock:
            self.refused[reason] += 1
            self.last_error = error or self.last_error

    def _subscribe(self, sender: str) -> zenoh.Subscriber[None]:
        prefix = self._key(sender, "")

        def arrived(sample: zenoh.Sample) -> None:
            try:
                text = str(sample.key_expr).removeprefix(prefix)
                # A put on a pattern ("hearsay/run/*/3") matches too: it has no one sender.
                if sample.kind != zenoh.SampleKind.PUT or not WORD.fullmatch(text):
                    self._refuse("unexpected")
                elif len(sample.payload) > self.largest:
                    self._refuse("oversized")
                else:
                    self._on_message(sender, text, sample.payload.to_bytes())
            except Exception as error:
                self._refuse("error", error)

        return self._session.declare_subscriber(prefix + "*", arrived)

    def _watch(self, name: str) -> Callable[[zenoh.Sample], None]:
        def changed(sample: zenoh.Sample) -> None:
            with self._lock:
                here = sample.kind == zenoh.SampleKind.PUT
                (self._alive.add if here else self._alive.discard)(name)
                self._met[name] += here
            self._on_link()

        return changed

    def _answer(self, query: zenoh.Query) -> None:
        with self._answered:
            self._answering += 1
        try:
            self._reply(query)
        finally:
            with self._answered:
                self._answering -= 1
                self._answered.notify_all()

    def _reply(self, query: zenoh.Query) -> None:
        # Leaving the block ends the query, also where there is no answer: the asker learns
        # that at once.
        with query:
            try:
                key = str(query.key_expr)
                text = key.removeprefix(self._key(self.me.name, ""))
                if not WORD.fullmatch(text.removeprefix("done/")):
                    self._refuse("unexpected")
                    return
                answer = self._outbox(int(text)) if text.isdecimal() else self._hello(text)
                if answer is not None:
                    query.reply(key, answer, express=True)
            except Exception as error:
                self._refuse("error", error)


class Observer:
    """Looks at a network from outside: connects to every agent and asks who it is; listens nowhere,
    publishes nothing.

    Under TLS its certificate has the common name "observer", which may ask for
    `hearsay/<run>/*/hello` and no more.
    """

    def __init__(
        self,
        run: str,
        peers: Sequence[Peer],
        credentials: Credentials | None,
        *,
        largest: int = 1 << 20,
    ):
        self.run, self.peers = valid_name("run", run), {peer.name: peer for peer in peers}
        self.largest = require.count("largest", largest)
        self.refused: Counter[str] = Counter()
        if credentials is not None:
            credentials.verify(OBSERVER)
        config = session_config(
            peers, [], [peer.endpoint for peer in peers], credentials, 2 * self.largest + 65536
        )
        self._session = _open(config, "no endpoint")

    def hello(self, agent: str, timeout: float = 2.0) -> bytes | None:
        """The agent's answer to "hello"; None if it cannot be reached within the time."""
        require.one_of("agent", agent, self.peers)
        end = time.monotonic() + require.positive("timeout", timeout)
        while (left := end - time.monotonic()) > 0:
            answer = _ask(
                self._session,
                f"hearsay/{self.run}/{agent}/hello",
                self.largest,
                left,
                lambda reason: self.refused.update([reason]),
            )
            if answer is not None:
                return answer
            time.sleep(min(0.05, left))  # the links of a new session come up in the background
        return None

    def close(self) -> None:
        _close(self._session)

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(config: dict[str, Any], endpoint: str) -> zenoh.Session:
    zenoh.try_init_log_from_env()  # silent unless RUST_LOG asks for Zenoh's own log
    try:
        session = zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
    except zenoh.ZError as error:
        raise OSError(f"Zenoh cannot open a session on {endpoint}: {_reason(error)}") from None
    with _guard:
        if not any(thread.name == CLOSER for thread in threading.enumerate()):
            threading.Thread(target=_close_at_exit, name=CLOSER).start()
        _closers[session] = _Closer(session)
    return session


def _reason(error: zenoh.ZError) -> str:
    return re.sub(r" at /\S+:[0-9]+\.", "", str(error))  # without the line of Zenoh's source


def _close_at_exit() -> None:
    # Zenoh's callback threads are no daemons: a process that fails without closing would wait for
    # them forever, and `atexit` comes after that wait.
    threading.main_thread().join()
    closers = list(_closers.values())
    for closer in closers:
        closer.asked.set()
    # A thread that comes back from Zenoh when Python has been taken down aborts the process: its
    # exit code would be a crash's.
    for closer in closers:
        closer.join(LAST_SECONDS)


def _get(session: zenoh.Session, key: str, timeout: float, handler: Any = None) -> Any:
    # All who may know: a restarted agent may still be remembered under its dead link. The first
    # good answer wins.
    everyone, each = zenoh.QueryTarget.ALL, zenoh.ConsolidationMode.NONE
    try:
        return session.get(
            key, handler, target=everyone, consolidation=each, timeout=timeout, express=True
        )
    except zenoh.ZError as error:
        raise OSError(f"{key} cannot be asked for: {_reason(error)}") from None


def _checked(
    reply: zenoh.Reply, key: str, largest: int, refuse: Callable[[str], None]
) -> bytes | None:
    sample = reply.ok
    if sample is None:
        return None  # the time was up
    if str(sample.key_expr) != key or sample.kind != zenoh.SampleKind.PUT:
        refuse("unexpected")
    elif len(sample.payload) > largest:
        refuse("oversized")
    else:
        return sample.payload.to_bytes()
    return None


def _ask(
    session: zenoh.Session, key: str, largest: int, timeout: float, refuse: Callable[[str], None]
) -> bytes | None:
    checked = (_checked(reply, key, largest, refuse) for reply in _get(session, key, timeout))
    return next((answer for answer in checked if answer is not None), None)


def _close(session: zenoh.Session) -> None:
    closer = _closers.get(session)
    if closer is not None:
        closer.asked.set()
        closer.join(CLOSE_SECONDS)


class _Closer(threading.Thread):
    """Closes a session when it is asked to. Zenoh waits for its links to say goodbye; a dead peer
    must not keep who asks from going on. It begins with the session, because from Python 3.12 on a
    process that is ending starts no more threads.
    """

    def __init__(self, session: zenoh.Session) -> None:
        super().__init__(name="hearsay-close", daemon=True)
        self.asked, self._session = threading.Event(), session
        self.start()

    def run(self) -> None:
        self.asked.wait()
        with suppress(zenoh.ZError):  # a goodbye that nobody hears
            self._session.close()
        with _guard:
            _closers.pop(self._session, None)
