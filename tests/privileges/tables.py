"""The tables of SECURITY.md, and the words that the source has for the same."""
import re

from harness import TOP

CAP_NAMES = ("CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE "
             "NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT "
             "SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG "
             "WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE").split()


def cap_set(hexadecimal):
    n = int(hexadecimal, 16)
    return {name for i, name in enumerate(CAP_NAMES) if n >> i & 1}


def table(first):
    """The rows below the header whose first cell is this, each a dictionary by the headers."""
    rows, header = [], None
    for line in (TOP / "SECURITY.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")] if line.startswith("|") else None
        if header and not cells:
            break
        if cells and header and not re.fullmatch(r"[-: ]+", cells[0]):
            rows.append(dict(zip(header, cells)))
        if cells and cells[0] == first and not header:
            header = cells
    return rows


def words(cell):
    """"a, b" as a set; "-" is none."""
    return {w.strip() for w in cell.split(",")} - {"-", ""}


def caps(cell):
    return set(re.findall(r"[A-Z][A-Z_]+", cell))


def documented_warden_caps():
    return set().union(*(caps(row["capability"]) for row in table("capability")))


def documented_sandbox_caps():
    text = (TOP / "SECURITY.md").read_text()
    return caps(re.search(r"capabilities of a sandbox are(.*?)[:.]", text, re.S)[1])


def source(path):
    return (TOP / path).read_text()


def calls_in(path, array):
    """The names in an array of SCMP_SYS()."""
    body = re.search(rf"{array}\[\] = {{(.*?)}};", source(path), re.S)[1]
    return set(re.findall(r"SCMP_SYS\((\w+)\)", body))


def warden_caps():
    body = re.search(r"KEPT\[\] = {(.*?)};", source("src/warden/privs.c"), re.S)[1]
    return set(re.findall(r"CAP_(\w+)", body))


def sandbox_caps():
    """As the profile was settled for; the bundle's list is compared with it by the running node."""
    text = source("src/warden/meson.build")
    return set(re.findall(r"[A-Z_]{3,}", re.search(r"host_machine.cpu_family\(\),(.*?)\],", text, re.S)[1]))
