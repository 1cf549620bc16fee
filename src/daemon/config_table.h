/* Every key of bothy.yaml. No include guard: included with CONFIG_SECTION and CONFIG_ROW defined.
 *
 * CONFIG_SECTION(section, help)
 * CONFIG_ROW(section, key, type, default, min, max, choices, help)
 *
 * Types: TEXT (char *), COUNT, SIZE (bytes), TIME (milliseconds), MILLI (thousandths), all
 * uint64_t, BOOL. min and max bound the number, for TEXT its length. choices: "a|b|c" or NULL. */
CONFIG_SECTION(node, "Who this node is.")
CONFIG_ROW(node, cell, TEXT, "b000", 4, 4, NULL,
           "Four characters of a-z and 0-9; every sandbox id of this node begins with them.")

CONFIG_SECTION(listen, "Where callers come in.")
CONFIG_ROW(listen, socket, TEXT, "/run/bothy/bothyd.sock", 1, 4096, NULL,
           "The unix socket. Root and bothyd's own user are administrators on it.")
CONFIG_ROW(listen, group, TEXT, "bothy-users", 0, 64, NULL,
           "Members of this group are users on the unix socket. Empty: nobody else.")
CONFIG_ROW(listen, tcp, TEXT, "", 0, 256, NULL,
           "address:port for callers with a key, as 127.0.0.1:7070 or [::1]:7070. Empty: off. "
           "There is no TLS here; put a proxy before it.")

CONFIG_SECTION(state, "What survives a restart.")
CONFIG_ROW(state, dir, TEXT, "/var/lib/bothy/bothyd", 1, 4096, NULL,
           "Store, spools and staging; owned by bothyd's user, mode 0700.")

CONFIG_SECTION(store, "The records.")
CONFIG_ROW(store, sync, TEXT, "full", 1, 16, "full|normal",
           "full: an acknowledged create survives a power cut. normal: it survives a crash of "
           "bothyd, and is faster.")

CONFIG_SECTION(warden, "The root process of the node.")
CONFIG_ROW(warden, socket, TEXT, "/run/bothy/warden.sock", 1, 4096, NULL, "Its unix socket.")

CONFIG_SECTION(backend, "What provides sandboxes.")
CONFIG_ROW(
    backend, name, TEXT, "oci", 1, 16, "oci|docker|kubernetes|fake",
    "oci: containers made by the warden. docker: containers of Docker or Podman. kubernetes: "
    "pods of a cluster. fake: plain processes without walls, for tests. With --user the "
    "default is docker.")
CONFIG_ROW(backend, socket, TEXT, "", 0, 4096, NULL,
           "docker: the engine's unix socket. Empty: the one of $DOCKER_HOST, else the first of "
           "Docker's and Podman's that answers.")
CONFIG_ROW(backend, warm, COUNT, "2", 0, 1000, NULL,
           "docker, kubernetes: containers or pods kept ready for each kind that was used lately. "
           "0: each is made when it is asked for.")
CONFIG_ROW(backend, max, COUNT, "100", 1, 100000, NULL,
           "docker, kubernetes: sandboxes at a time; what comes then waits.")
CONFIG_ROW(
    backend, network, TEXT, "", 0, 128, NULL,
    "docker: the engine's network for sandboxes that ask for network: open, as 'bridge'. "
    "They reach whatever it leads to, this machine and its neighbours too. Empty: none does.")
CONFIG_ROW(backend, init, TEXT, "/usr/libexec/bothy/bothy-init", 1, 4096, NULL,
           "docker: the static program that is pid 1 of every container.")
CONFIG_ROW(backend, fake_dir, TEXT, "", 0, 4096, NULL, "fake: state and sockets of its node.")
CONFIG_ROW(backend, fake_program, TEXT, "bothy-fake-node", 0, 4096, NULL, "fake: the node program.")
CONFIG_ROW(backend, fake_cut_every, COUNT, "0", 0, UINT32_MAX, NULL,
           "fake: every n-th frame cuts the connection. 0: never.")
CONFIG_ROW(backend, fake_repeat_every, COUNT, "0", 0, UINT32_MAX, NULL,
           "fake: every n-th frame is delivered again. 0: never.")
CONFIG_ROW(backend, prefer_kit, BOOL, "false", 0, 1, NULL,
           "For tests: ports and measurements by the kit, as on a backend that has none.")

CONFIG_SECTION(kubernetes, "The backend 'kubernetes'.")
CONFIG_ROW(kubernetes, kubeconfig, TEXT, "", 0, 4096, NULL,
           "How the cluster is reached. Empty: as the pod that bothyd runs in.")
CONFIG_ROW(kubernetes, namespace, TEXT, "", 0, 63, NULL,
           "Of pods and pools. Empty: the kubeconfig's, or bothyd's own.")
CONFIG_ROW(kubernetes, image, TEXT, "", 0, 1024, NULL,
           "The image of bothy: it brings bothy-init and bothy-kit into a pod.")
CONFIG_ROW(kubernetes, runtime_class, TEXT, "", 0, 253, NULL,
           "RuntimeClass of pods whose pool names none. Empty: the cluster's default.")
CONFIG_ROW(kubernetes, security, TEXT, "restricted", 1, 16, "restricted|baseline",
           "The Pod Security Standard that pods keep to. restricted: one user, which is not root, "
           "and no capability. baseline: root inside its pod, so that commands may be any user's.")
CONFIG_ROW(kubernetes, image_volume, BOOL, "false", 0, 1, NULL,
           "true: the cluster mounts images as volumes, and no init container copies bothy-init.")
CONFIG_ROW(kubernetes, unfenced, BOOL, "false", 0, 1, NULL,
           "For tests: without the cell's lease, so that two of a cell may run at once.")
CONFIG_ROW(kubernetes, operator, BOOL, "true", 0, 1, NULL,
           "bothyd keeps the pools of its namespace, and its sandboxes have Sandbox objects.")
CONFIG_ROW(kubernetes, policies, TEXT, "tried", 1, 16, "tried|vouched",
           "tried: whether the cluster enforces NetworkPolicies is found out; where it does not, "
           "sandboxes without a network are refused, and pools whose template needs policies stay "
           "empty. vouched: it is not tried, because something else holds sandboxes back.")

CONFIG_SECTION(user, "A bothyd of one user (bothyd --user).")
CONFIG_ROW(user, idle_exit, TIME, "10m", 0, UINT64_C(365) * 86400000, NULL,
           "After so long without a sandbox and without a request it ends; the next 'bothy' starts "
           "it again. 0: it stays.")

CONFIG_SECTION(files, "Files of sandboxes over HTTP.")
CONFIG_ROW(
    files, kit, TEXT, "/usr/libexec/bothy/bothy-kit", 0, 4096, NULL,
    "The program that is run in a sandbox for each file verb. Empty, or where it is missing: "
    "the image's sh and its tools do what they can.")

CONFIG_SECTION(
    limits, "Defaults of a sandbox that asks for nothing else, and the most a caller may ask for.")
CONFIG_ROW(limits, memory, SIZE, "1g", 8u << 20, UINT64_C(1) << 46, NULL, "Swap included.")
CONFIG_ROW(limits, cpu, MILLI, "1", 10, 1024000, NULL, "Cores; 0.5 is half of one.")
CONFIG_ROW(limits, pids, COUNT, "512", 4, 1u << 22, NULL, "Processes and threads.")
CONFIG_ROW(limits, disk, SIZE, "10g", 1u << 20, UINT64_C(1) << 46, NULL,
           "Bytes written; applied only where the file system has quotas.")
CONFIG_ROW(limits, nofile, COUNT, "1024", 16, 65536, NULL, "Open files a process begins with.")
CONFIG_ROW(limits, nofile_hard, COUNT, "65536", 16, 65536, NULL,
           "Open files a process may raise that to.")
CONFIG_ROW(limits, shm, SIZE, "64m", 1u << 20, UINT64_C(1) << 40, NULL, "/dev/shm.")
CONFIG_ROW(limits, max_memory, SIZE, "0", 0, UINT64_C(1) << 46, NULL,
           "The most that callers but administrators may ask for, also in templates and changes. "
           "A default above it is the ceiling. 0: the machine's memory; on Kubernetes any.")
CONFIG_ROW(limits, max_cpu, MILLI, "0", 0, 1024000, NULL,
           "Likewise. 0: the machine's processors, at least 2; on Kubernetes any.")
CONFIG_ROW(limits, max_pids, COUNT, "4096", 0, 1u << 22, NULL,
           "Likewise. 0: any. All sandboxes together have half of kernel.threads-max.")
CONFIG_ROW(limits, max_disk, SIZE, "0", 0, UINT64_C(1) << 46, NULL, "Likewise. 0: any.")
CONFIG_ROW(limits, max_shm, SIZE, "0", 0, UINT64_C(1) << 40, NULL,
           "Likewise. 0: as limits.max_memory.")
CONFIG_ROW(limits, ttl, TIME, "1h", 1000, UINT64_C(30) * 86400000, NULL, "Life of a sandbox.")
CONFIG_ROW(limits, queue_wait, TIME, "60s", 1000, 3600000, NULL,
           "How long a create may wait for a slot.")

CONFIG_SECTION(network,
               "Networks of sandboxes. What they may reach is the warden's to hold (--network).")
CONFIG_ROW(network, allow, TEXT, "admin", 1, 16, "admin|users",
           "Who may create a sandbox with network: open. admin: administrators. users: everybody "
           "who may create one.")
CONFIG_SECTION(quota, "What an owner may have whose key says nothing else; not of admins. 0: any.")
CONFIG_ROW(quota, max_sandboxes, COUNT, "0", 0, 1000000, NULL, "Sandboxes that live.")
CONFIG_ROW(quota, creates_per_second, MILLI, "0", 0, 100000000, NULL,
           "Creates on average; a burst of one second's may come at once.")
CONFIG_ROW(quota, max_concurrent, COUNT, "0", 0, 100000, NULL, "Creates under way at once.")
CONFIG_ROW(quota, max_ttl, TIME, "0", 0, UINT64_C(30) * 86400000, NULL, "The longest ttl.")
CONFIG_ROW(quota, max_memory, SIZE, "0", 0, UINT64_C(1) << 50, NULL,
           "Sum of the memory limits of an owner's live sandboxes.")
CONFIG_ROW(quota, max_cpu, MILLI, "0", 0, 1000000000, NULL, "Sum of their cpu limits.")
CONFIG_ROW(quota, max_snapshot_bytes, SIZE, "0", 0, UINT64_C(1) << 60, NULL,
           "Bytes of the files of snapshots together, as each one's `bytes`.")

CONFIG_SECTION(pool, "Slots that are kept ready.")
CONFIG_ROW(pool, low, COUNT, "0", 0, 16384, NULL,
           "Below so many slots the pool is filled up. low and high 0: as the warden was told "
           "(--pool). 'bothy pool' changes them until bothyd is started again.")
CONFIG_ROW(pool, high, COUNT, "0", 0, 16384, NULL, "So many it is filled up to.")

CONFIG_SECTION(exec, "Commands and their output.")
CONFIG_ROW(exec, live_max, COUNT, "256", 1, 1024, NULL, "Commands of one sandbox at a time.")
CONFIG_ROW(exec, stream_max, SIZE, "64m", 4u << 20, UINT64_C(1) << 40, NULL,
           "Of a longer stream the middle is dropped.")
CONFIG_ROW(exec, sandbox_max, SIZE, "1g", 4u << 20, UINT64_C(1) << 46, NULL,
           "Of a sandbox with more output the oldest ended commands lose theirs, then live ones "
           "the oldest bytes.")
CONFIG_ROW(exec, owner_max, SIZE, "0", 0, UINT64_C(1) << 60, NULL,
           "The same of all sandboxes of an owner together. In any case an owner has a quarter of "
           "the room for output, or less if more than three owners have some. 0: that alone.")
CONFIG_ROW(exec, stdin_max, SIZE, "1m", 64u << 10, 1u << 30, NULL,
           "Input a command has not read; more makes its sender wait.")
CONFIG_ROW(exec, hold, TIME, "60s", 100, 3600000, NULL,
           "At the ceiling a command waits for a follower that has still to read; for one that "
           "gets no further for so long it does not wait any more.")

CONFIG_SECTION(retention, "How long things stay that nobody uses.")
CONFIG_ROW(
    retention, record, TIME, "24h", 1000, UINT64_C(365) * 86400000, NULL,
    "After a sandbox's end: its record, cause and end records; also how long idempotency keys hold.")
CONFIG_ROW(retention, spool, TIME, "1h", 0, UINT64_C(365) * 86400000, NULL,
           "After a sandbox's end: the output of its commands.")
CONFIG_ROW(retention, paused, TIME, "24h", 1000, UINT64_C(365) * 86400000, NULL,
           "One that is paused, before it ends with the cause ttl.")

CONFIG_SECTION(http, "The server.")
CONFIG_ROW(http, threads, COUNT, "512", 1, 4096, NULL, "Requests at a time; streams need none.")
CONFIG_ROW(http, relay_threads, COUNT, "0", 0, 256, NULL,
           "Threads that move streams. 0: one a core.")
CONFIG_ROW(http, connections, COUNT, "20000", 1, 1000000, NULL, "Open connections.")
CONFIG_ROW(http, owner_memory, SIZE, "0", 0, UINT64_C(1) << 46, NULL,
           "Memory for one owner's unread answers and waiting requests, at least 64m. 0: a "
           "thirty-second of the machine's memory.")
CONFIG_ROW(http, stall, TIME, "60s", 100, 3600000, NULL,
           "A peer that takes no byte of an answer for so long is cut off.")

CONFIG_SECTION(ports, "Servers inside sandboxes.")
CONFIG_ROW(
    ports, domain, TEXT, "", 0, 200, NULL,
    "<port>-<sandbox id>.<domain> is a server inside, as an origin of its own. Lower case; its "
    "names must lead here, and none of them may be anything else. Empty: off.")
CONFIG_ROW(ports, answer_wait, TIME, "5m", 100, 86400000, NULL,
           "How long a server may take until its answer begins.")
CONFIG_ROW(ports, idle, TIME, "1h", 100, UINT64_C(7) * 86400000, NULL,
           "A stream in which no byte moves is closed after so long.")

CONFIG_SECTION(e2b, "The door for E2B's SDKs, on the same listeners.")
CONFIG_ROW(e2b, enabled, BOOL, "true", 0, 1, NULL, "false: their paths and hosts are nobody's.")
CONFIG_ROW(e2b, base_image, TEXT, "docker.io/e2bdev/base:latest", 1, 1024, NULL,
           "The image of the template 'base'.")
CONFIG_ROW(e2b, code_interpreter_image, TEXT, "docker.io/e2bdev/code-interpreter:latest", 1, 1024,
           NULL, "The image of the template 'code-interpreter-v1'.")
CONFIG_ROW(e2b, code_interpreter_start, TEXT,
           "command -v code-interpreter >/dev/null && exec code-interpreter; "
           "exec sudo /root/.jupyter/start-up.sh",
           0, 4096, NULL,
           "The command that its sandboxes begin with, by sh: the server of run_code. The first is "
           "that of tools/e2b-images, the second that of E2B's own image. \"\": none.")
CONFIG_ROW(e2b, default_ttl, TIME, "5m", 1000, UINT64_C(30) * 86400000, NULL,
           "Life of a sandbox whose creator names no timeout.")
CONFIG_ROW(e2b, internet, TEXT, "refuse", 1, 16, "refuse|warn",
           "Who asks for the internet and may not have it: refuse: gets an error. warn: gets a "
           "sandbox without it, and a line is logged.")
CONFIG_ROW(e2b, public_ports, BOOL, "false", 0, 1, NULL,
           "Servers inside sandboxes of this door answer everybody who knows the host name "
           "<port>-<sandbox id>.<domain>, without a token, as E2B has it.")
CONFIG_ROW(e2b, watcher_idle, TIME, "1h", 1000, 86400000, NULL,
           "A watcher that nobody has asked for so long goes; until then it keeps its sandbox from "
           "being idle.")

CONFIG_SECTION(swerex, "The door for clients of SWE-ReX, on the same listeners.")
CONFIG_ROW(swerex, enabled, BOOL, "true", 0, 1, NULL, "false: its paths are nobody's.")
CONFIG_SECTION(mcp, "The door for models (the Model Context Protocol), /mcp on the same listeners.")
CONFIG_ROW(mcp, enabled, BOOL, "true", 0, 1, NULL, "false: /mcp is nobody's.")
CONFIG_ROW(mcp, image, TEXT, "docker.io/library/python:3.12", 1, 1024, NULL,
           "The image of a sandbox for which none is named.")
CONFIG_ROW(mcp, idle, TIME, "30m", 1000, UINT64_C(30) * 86400000, NULL,
           "A sandbox of this door that nobody has used for so long ends.")
CONFIG_ROW(mcp, ttl, TIME, "12h", 1000, UINT64_C(30) * 86400000, NULL,
           "The longest life of a sandbox of this door whose creator names none.")

CONFIG_SECTION(code, "Snippets of code, each in a sandbox of its own.")
CONFIG_ROW(code, image, TEXT, "", 0, 1024, NULL,
           "The image with the languages (tools/code-images makes it), fetched when bothyd starts. "
           "Empty: there is none, and code_run answers unsupported.")

CONFIG_SECTION(images, "Where images come from.")
CONFIG_ROW(images, skopeo, TEXT, "skopeo", 1, 4096, NULL, "The program that fetches them.")
CONFIG_ROW(images, pull_timeout, TIME, "30m", 1000, 86400000, NULL, "For one image.")
CONFIG_ROW(images, local, TEXT, "/srv", 0, 4096, NULL,
           "Directories, with colons between them, in which images of the node may lie (oci:, "
           "docker-archive:, dir:). Where the kernel has Landlock, bothyd can read no other.")
CONFIG_ROW(images, from, TEXT, "any", 1, 16, "any|listed",
           "any: every registry with a public address, and those below 'registries'. listed: only "
           "the latter.")

CONFIG_SECTION(registries,
               "What is to be known about registries, by host as in image names. Each may have "
               "'mirrors' (a list, asked first and in order), 'insecure: true' (plain http, or TLS "
               "that is not verified) and 'ca' (a PEM file with its authority). A host with a "
               "private, loopback or link-local address is asked only if it is named here.")

CONFIG_SECTION(log, "Lines of JSON on standard error.")
CONFIG_ROW(log, level, TEXT, "info", 1, 16, "debug|info|warn|error",
           "The least level that is written.")
CONFIG_ROW(
    log, access, TEXT, "errors", 1, 16, "errors|all|none",
    "Which answers get a line of their own: errors (4xx at info, 5xx at warn), all, none. At "
    "most 200 a second.")
