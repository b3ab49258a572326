"""Real mail servers in a folder of their own, and what cuts the wire to them.

    MailServers   Exim (SMTP) and Dovecot (IMAP) from Debian's packages, without root's rights, on free ports of 127.0.0.1;
                  effects are counted in the mailboxes on disk
    Wire          a port before Exim that reads the dialogue and, on its first connection, does at one step what it was told

Exim delivers what comes for archive@… into one mailbox (the one that look-ups search) and all else into another; the copy of each
recipient is a file of its own."""

import email
import email.policy
import getpass
import grp
import os
import pathlib
import pwd
import selectors
import socket
import subprocess
import threading

from onced_e2e.ports import free_port
from onced_e2e.wait import wait_until

EXIM, DOVECOT = "/usr/sbin/exim4", "/usr/sbin/dovecot"
EXIM_USER = "Debian-exim"
PASSWORD = "correct-horse"

EXIM_CONF = """
spool_directory = {folder}/spool
log_file_path = {folder}/log/%slog
pid_file_path = {folder}/exim.pid
primary_hostname = mx.example.com
local_interfaces = 127.0.0.1
keep_environment =
{tls}
deliver_drop_privilege
untrusted_set_sender = *
no_local_from_check
host_lookup =
rfc1413_query_timeout = 0s
smtp_accept_max = 300
queue_run_max = 0
smtp_accept_queue = 0
message_size_limit = 20M
acl_smtp_rcpt = rcpt
acl_smtp_data = data
begin acl
rcpt:
  deny local_parts = nobody
       message = no such user here
  defer local_parts = later
       message = come back later
  accept
data:
  deny condition = ${{if match{{$h_subject:}}{{refuse this}}}}
       message = not this content
  defer condition = ${{if match{{$h_subject:}}{{greylist this}}}}
       message = greylisted
  accept
begin routers
archive:
  driver = accept
  local_parts = archive
  transport = archive
all:
  driver = accept
  transport = people
begin transports
archive:
  driver = appendfile
  directory = {folder}/mail/archive
  maildir_format
  envelope_to_add
people:
  driver = appendfile
  directory = {folder}/mail/people
  maildir_format
  envelope_to_add
begin retry
* * F,1h,1m
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = ${{if eq{{$auth3}}{{{password}}}}}
  server_set_id = $auth2
"""

TLS = """tls_advertise_hosts = *
tls_certificate = {folder}/cert.pem
tls_privatekey = {folder}/key.pem"""

DOVECOT_CONF = """
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log/dovecot
protocols = imap
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {user}
ssl = no
disable_plaintext_auth = no
mail_max_userip_connections = 0
first_valid_uid = 1
first_valid_gid = 1
mail_location = maildir:{folder}/mail/%u
service anvil {{
  chroot =
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    address = 127.0.0.1
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={user} gid={group} home={folder}/home/%u
}}
"""


def can_connect(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def there():
    return pathlib.Path(EXIM).exists() and pathlib.Path(DOVECOT).exists()


class MailServers:
    """folder must be one that the servers' user can reach (no private folder of root's)."""

    def __init__(self, folder, tls=False):
        self.folder = folder
        self.tls = tls  # Exim offers STARTTLS, with the certificate cert.pem for localhost
        root = os.getuid() == 0
        self.user = EXIM_USER if root else getpass.getuser()
        entry = pwd.getpwnam(self.user)
        self.group = grp.getgrgid(entry.pw_gid).gr_name
        self.identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if root else {}
        self.daemon = root  # Exim listens for its own user and root only; for others it serves one connection at a time
        for name in ("spool", "log", "mail", "run", "state", "home"):
            path = folder / name
            path.mkdir()
            os.chown(path, entry.pw_uid, entry.pw_gid) if root else None
        self.smtp_port, self.imap_port = free_port(), free_port()
        self.children = []
        self.wires = []

    def start(self):
        names = {"folder": self.folder, "user": self.user, "group": self.group, "port": self.imap_port, "password": PASSWORD}
        names["tls"] = TLS.format(**names) if self.tls else "tls_advertise_hosts ="
        if self.tls:
            self._make_certificate()
        self.exim_conf = self.folder / "exim.conf"
        self.exim_conf.write_text(EXIM_CONF.format(**names))
        (self.folder / "dovecot.conf").write_text(DOVECOT_CONF.format(**names))
        self._run([DOVECOT, "-F", "-c", str(self.folder / "dovecot.conf")])
        if self.daemon:
            self._run([EXIM, "-C", str(self.exim_conf), "-bdf", "-oX", str(self.smtp_port)])
            wait_until(lambda: can_connect(self.smtp_port), seconds=20, what="Exim")
        wait_until(lambda: can_connect(self.imap_port), seconds=20, what="Dovecot")
        return self

    def _make_certificate(self):
        key, certificate = self.folder / "key.pem", self.folder / "cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-keyout", key, "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                       check=True, capture_output=True)
        key.chmod(0o644)

    def _run(self, argv, **streams):
        with open(self.folder / "servers.log", "ab") as log:
            child = subprocess.Popen(argv, cwd="/", stderr=log, **{"stdin": subprocess.DEVNULL, "stdout": log, **streams}, **self.identity)
        self.children.append(child)
        return child

    def connect(self):
        """A connection to Exim."""
        if self.daemon:
            return socket.create_connection(("127.0.0.1", self.smtp_port), 20)
        ours, theirs = socket.socketpair()
        self._run([EXIM, "-C", str(self.exim_conf), "-bs"], stdin=theirs, stdout=theirs)
        theirs.close()
        return ours

    def wire(self, *rules):
        self.wires.append(Wire(self, rules))
        return self.wires[-1]

    def stop(self):
        for wire in self.wires:
            wire.close()
        for child in self.children:
            child.terminate() if child.poll() is None else None
        for child in self.children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    # ---- the truth ----

    def files(self, box):
        return [path for part in ("new", "cur") for path in (self.folder / "mail" / box / part).glob("*")]

    def messages(self, box="people"):
        return [email.message_from_bytes(path.read_bytes(), policy=email.policy.default) for path in self.files(box)]

    def counts(self, box="archive"):
        """Message-ID → how many of it lie there."""
        counts = {}
        for message in self.messages(box):
            counts[message["Message-ID"]] = counts.get(message["Message-ID"], 0) + 1
        return counts

    def spooled(self):
        return list((self.folder / "spool" / "input").glob("*-H"))

    def settle(self):
        """What was accepted is delivered."""
        wait_until(lambda: not self.spooled(), seconds=30, what="empty spool")

    def text(self):
        logs = [self.folder / "servers.log", *sorted((self.folder / "log").glob("*"))]
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}" for path in logs if path.exists())


STEPS = ("greeting", "EHLO", "AUTH", "MAIL", "RCPT", "DATA", "message", "end", "QUIT")


class Wire:
    """Rules, taken by one connection each, in turn; later connections pass.

        (step, "before")    what the client says at the step does not reach the server, both sides are cut
        (step, "after")     it does; when the server has answered, both sides are cut, and the client never sees the answer
        (step, "told")      the client gets the answer, then both sides are cut
        (step, "silent")    as after, but the client's side stays open and silent
        (step, "half")      the client gets the first two bytes of the answer
        (step, b"450 …\\r\\n")  the client gets this answer, the server never hears of the step
    """

    def __init__(self, servers, rules):
        self.servers = servers
        self.rules = list(rules)
        self.lock = threading.Lock()
        self.counts = {step: 0 for step in STEPS}  # what clients said, over all connections
        self.connections = 0
        self.at_step = threading.Condition(self.lock)
        self.open = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"smtp://127.0.0.1:{self.port}"

    def close(self):
        self.listener.close()
        for connection in self.open:
            connection.cut()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                rule = self.rules.pop(0) if self.rules else None
            connection = Connection(self, client, rule)
            self.open.append(connection)
            threading.Thread(target=connection.run, daemon=True).start()

    def said(self, step):
        with self.lock:
            self.counts[step] += 1
            self.at_step.notify_all()

    def wait_for(self, step, count=1, seconds=20):
        """Until clients have been at the step so often."""
        with self.lock:
            assert self.at_step.wait_for(lambda: self.counts[step] >= count, seconds), (step, self.counts)


class Connection:
    def __init__(self, wire, client, rule):
        self.wire = wire
        self.client = client
        self.server = None
        self.rule = rule
        self.step = "greeting"  # whose answer comes next
        self.in_message = False
        self.from_client = b""
        self.reply = b""
        self.muted = False

    def cut(self):
        """With a reset where data lies about, as a broken network does."""
        for end in (self.client, self.server):
            if end:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                end.close()

    def applies(self, how):
        return self.rule is not None and self.rule[0] == self.step and self.rule[1] == how

    def run(self):
        try:
            self.wire.said("greeting")
            if self.applies("before"):
                return
            if self.rule and self.rule[0] == "greeting" and isinstance(self.rule[1], bytes):
                self.client.sendall(self.rule[1])
                self.client.recv(1000)
                return
            self.server = self.wire.servers.connect()
            self._pass()
        except OSError:
            pass
        finally:
            self.cut()

    def _pass(self):
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.client, selectors.EVENT_READ, self._client_said)
            waiting.register(self.server, selectors.EVENT_READ, self._server_said)
            while True:
                for key, _ in waiting.select():
                    piece = key.fileobj.recv(65536)
                    if key.fileobj is self.server and not piece and self.muted:
                        waiting.unregister(self.server)
                        continue
                    if not piece or not key.data(piece):
                        return

    def _command_step(self, line):
        verb = line.split(b" ")[0].strip().upper().decode(errors="replace")
        return verb if verb in STEPS else "EHLO" if verb == "HELO" else self.step

    def _client_said(self, piece):
        self.from_client += piece
        while True:
            line, newline, rest = self.from_client.partition(b"\n")
            if not newline:
                return True
            self.from_client = rest
            line += newline
            if self.in_message:
                self.step = "end" if line == b".\r\n" else "message"
                self.in_message = self.step == "message"
                if self.step == "end" or line == b"\r\n":  # the message's middle: the line between headers and body
                    self.wire.said(self.step)
                elif self.applies("before"):
                    self.server.sendall(line)
                    continue
            else:
                self.step = self._command_step(line)
                self.wire.said(self.step)
            if self.applies("before"):
                return False
            if self.rule and self.rule[0] == self.step and isinstance(self.rule[1], bytes):
                if self.step != "message" or line == b"\r\n":
                    self.client.sendall(self.rule[1])
                    if self.step != "RCPT":
                        self.client.recv(65536)
                        return False
                    continue
            self.server.sendall(line)

    def _server_said(self, piece):
        self.reply += piece
        while True:
            line, newline, rest = self.reply.partition(b"\n")
            if not newline:
                return True
            self.reply = rest
            line += newline
            last = line[3:4] != b"-"
            if self.muted or (last and self.applies("silent")):
                self.muted = True
                continue
            if last and self.applies("after"):
                return False
            if last and self.applies("half"):
                self.client.sendall(line[:2])
                return False
            self.client.sendall(line)
            if last and self.applies("told"):
                return False
            if last and self.step == "DATA" and line.startswith(b"354"):
                self.in_message = True
                self.step = "message"
