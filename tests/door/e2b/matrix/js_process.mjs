// Commands: output, users, limits of time, stdin, those that go on.
import { createHash } from 'node:crypto'
import { atLeast, behaviour, check, equal, have, mentions, raises, skip, sleep } from './js_lib.mjs'

const MISSING = 2000000000
const REFUSED = ['AuthenticationError', 'SandboxError', 'InvalidArgumentError']
const EXIT = ['CommandExitError']

behaviour('run_output', async t => {
  const r = await t.run('echo out; echo err >&2')
  equal([r.exitCode, r.stdout, r.stderr, r.error || null], [0, 'out\n', 'err\n', null], 'result')
})
behaviour('run_callbacks', async t => {
  const out = [], err = []
  const r = await t.run('echo a; sleep 1; echo b; echo c >&2', { onStdout: x => { out.push(x) }, onStderr: x => { err.push(x) } })
  equal([out.join(''), err.join('')], ['a\nb\n', 'c\n'], 'what callbacks got')
  check(out.length >= 2, 'output comes as it is written')
  equal(r.stdout, 'a\nb\n', 'stdout')
})
behaviour('run_exit_code', async t => {
  const e = await raises(EXIT, () => t.run('echo x; echo y >&2; exit 3'))
  equal([e.exitCode, e.stdout, e.stderr], [3, 'x\n', 'y\n'], 'result')
})
behaviour('run_signalled', async t => {
  const e = await raises(EXIT, () => t.run('kill -TERM $$'))
  check(e.exitCode !== 0 && String(e.error).includes('terminated'), `${e.exitCode} ${e.error}`)
})
behaviour('run_not_found', async t => {
  const e = await raises(EXIT, () => t.run('there-is-no-such-program'))
  equal(e.exitCode, 127, 'exit code')
  check(e.stderr.includes('not found'), e.stderr)
})
behaviour('run_unicode', async t => equal(await t.out("printf 'ž€😀\\n'; echo ž€😀"), 'ž€😀\nž€😀\n'))
behaviour('run_big_output', async t => {
  const got = await t.out("head -c 6000000 /dev/zero | tr '\\0' x; printf '€%.0s' $(seq 20000)")
  // Versions before 2.0 decode each chunk by itself.
  check(atLeast(2, 0, 0) ? got === 'x'.repeat(6000000) + '€'.repeat(20000) : got.startsWith('x'.repeat(6000000)), `${got.length} characters`)
})
behaviour('run_binary_output', async t => {
  const got = await t.out("printf 'a\\377\\376b\\0c'")
  check(got.startsWith('a') && got.endsWith('c'), got)
})
behaviour('run_without_output', async t => {
  const r = await t.run('true')
  equal([r.exitCode, r.stdout, r.stderr], [0, '', ''], 'result')
})
behaviour('run_envs', async t => {
  equal(await t.out('echo "$GIVEN|$MORE"', { envs: { MORE: 'ž \'q\' "d" $X' } }), 'by create|ž \'q\' "d" $X\n')
  equal(await t.out('echo $GIVEN', { envs: { GIVEN: 'by run' } }), 'by run\n')
})
behaviour('run_cwd', async t => {
  equal(await t.out('pwd', { cwd: '/usr/lib' }), '/usr/lib\n')
  equal(await t.out('pwd'), '/home/user\n', 'where it runs when not told')
})
behaviour('run_cwd_missing', async t => {
  const e = await raises(['InvalidArgumentError'], () => t.run('pwd', { cwd: '/no/such/dir' }))
  check(e.message.includes('/no/such/dir'), e.message)
})
behaviour('run_user_default', async t => equal(await t.out('id -un; echo $HOME; echo $USER'), 'user\n/home/user\nuser\n'))
behaviour('run_user_user', async t => equal(await t.out('id -un', { user: 'user' }), 'user\n'))
behaviour('run_user_root', async t => equal(await t.out('id -u; echo $HOME', { user: 'root' }), '0\n/root\n'))
behaviour('run_user_other', async t => equal(await t.out('id -un', { user: 'nobody' }), 'nobody\n'))
behaviour('run_user_unknown', async t => {
  const e = await raises(REFUSED, () => t.run('id', { user: 'nosuchuser' }))
  check(e.message.includes('nosuchuser'), e.message)
})
behaviour('run_sudo', async t => equal(await t.out('sudo -n id -u'), '0\n'))
behaviour('run_quotes', async t =>
  equal(await t.out("printf '%s\\n' \"a'b\" 'c\"d' \"$(printf 'e\\nf')\" \\\\ '*'"), "a'b\nc\"d\ne\nf\n\\\n*\n"))
behaviour('run_long_text', async t => equal(await t.out('# ' + 'x'.repeat(100000) + '\necho end'), 'end\n'))
behaviour('run_lines', async t => equal(await t.out('f() {\n  echo "in $1"\n}\nfor i in 1 2; do\n  f $i\ndone'), 'in 1\nin 2\n'))
behaviour('run_timeout', async t => {
  const began = Date.now()
  await raises(['TimeoutError'], () => t.run('echo begun; sleep 47', { timeoutMs: 1500 }))
  check(Date.now() - began < 6000, 'it took too long')
  await sleep(0.5)
  await t.eventually('what it ran is gone', async () => await t.out("pgrep -f '[s]leep 47' | wc -l") === '0\n', 6)
})
behaviour('run_no_timeout', async t => equal(await t.out('sleep 1; echo unhurried', { timeoutMs: 0 }), 'unhurried\n'))
behaviour('run_leaves_daemon', async t => {
  const began = Date.now()
  const pid = Number(await t.out('setsid sleep 30 >/dev/null 2>&1 & echo $!'))
  check(Date.now() - began < 8000, 'the command waited for what it left')
  equal(await t.out(`kill ${pid} && echo lived`), 'lived\n', 'the daemon')
})
behaviour('run_many_at_once', async t => {
  const numbers = [...Array(20).keys()]
  const got = await Promise.all(numbers.map(i => t.run(`sleep 0.2; echo ${i}; echo e${i} >&2`)))
  equal(got.map(r => [r.stdout, r.stderr]), numbers.map(i => [`${i}\n`, `e${i}\n`]), 'results')
})
behaviour('run_sequence', async t => { for (let i = 0; i < 20; i++) equal(await t.out(`echo ${i}`), `${i}\n`) })

behaviour('background', async t => {
  const handle = await t.start('echo one; sleep 0.5; echo two')
  check(Number.isInteger(handle.pid) && handle.pid > 0, handle.pid)
  const r = await handle.wait()
  equal([r.exitCode, r.stdout], [0, 'one\ntwo\n'], 'result')
})
behaviour('background_exit_code', async t => {
  const handle = await t.start('echo x; exit 9')
  const e = await raises(EXIT, () => handle.wait())
  equal([e.exitCode, e.stdout], [9, 'x\n'], 'result')
})
behaviour('background_events', async t => {
  const got = []
  const handle = await t.start('echo a; sleep 0.3; echo b', { onStdout: x => { got.push(x) } })
  await handle.wait()
  equal(got.join(''), 'a\nb\n', 'what came')
})
behaviour('background_list', async t => {
  const handle = await t.start('sleep 31', { envs: { MARK: 'listed' }, cwd: '/tmp' })
  const found = (await t.sb.commands.list()).filter(p => p.pid === handle.pid)
  equal(found.length, 1, 'entries of it')
  equal([found[0].cmd, found[0].args.at(-1), found[0].cwd, found[0].envs.MARK], ['/bin/bash', 'sleep 31', '/tmp', 'listed'], 'what the list says')
  await handle.kill()
  await t.eventually('the list forgets it', async () => !(await t.sb.commands.list()).some(p => p.pid === handle.pid))
})
behaviour('background_kill', async t => {
  const handle = await t.start('sleep 48 & sleep 48 & wait')
  equal(await handle.kill(), true, 'kill')
  check((await raises(EXIT, () => handle.wait())).exitCode !== 0)
})
behaviour('kill_pid', async t => {
  const handle = await t.start('sleep 33')
  equal(await t.sb.commands.kill(handle.pid), true, 'kill')
  await raises(EXIT, () => handle.wait())
  equal(await t.sb.commands.kill(MISSING), false, 'kill of a missing one')
})
// Shell that waits until a file is there: go(t) writes it, when everybody who is to see what follows is connected.
const held = t => `until [ -e ${t.dir}/go ]; do sleep 0.1; done`
const go = t => t.sb.files.write(`${t.dir}/go`, '1')
behaviour('background_disconnect', async t => {
  const handle = await t.start(`${held(t)}; echo late; echo done >/tmp/disconnected`)
  await handle.disconnect()
  const again = await t.sb.commands.connect(handle.pid)
  await go(t)
  const r = await again.wait()
  check(r.stdout.includes('late') && r.exitCode === 0, r)
  equal(await t.sb.files.read('/tmp/disconnected'), 'done\n', 'what it did')
})
behaviour('connect_pid', async t => {
  const handle = await t.start(`${held(t)}; echo seen by both; exit 0`)
  const again = await t.sb.commands.connect(handle.pid)
  equal(again.pid, handle.pid, 'pid')
  await go(t)
  equal((await Promise.all([handle.wait(), again.wait()])).map(r => r.stdout), ['seen by both\n', 'seen by both\n'], 'what both got')
})
behaviour('connect_pid_from_elsewhere', async t => {
  const handle = await t.start(`${held(t)}; echo found; exit 4`)
  await handle.disconnect()
  const sb = await t.Sandbox.connect(t.sb.sandboxId)
  const again = await sb.commands.connect(handle.pid)
  await go(t)
  const e = await raises(EXIT, () => again.wait())
  equal([e.exitCode, e.stdout], [4, 'found\n'], 'result')
})
behaviour('connect_pid_ended', async t => {
  const handle = await t.start('echo over; exit 5')
  await raises(EXIT, () => handle.wait())
  equal((await raises(EXIT, async () => (await t.sb.commands.connect(handle.pid)).wait())).exitCode, 5, 'exit code')
})
behaviour('connect_pid_missing', async t => { await raises(['NotFoundError'], () => t.sb.commands.connect(MISSING)) })

const stdin = { stdin: true }
behaviour('stdin', async t => {
  const handle = await t.start('read a; read b; echo got $a $b', stdin)
  await t.sb.commands.sendStdin(handle.pid, 'x1\n')
  await t.sb.commands.sendStdin(handle.pid, 'ž2\n')
  equal((await handle.wait()).stdout, 'got x1 ž2\n')
})
behaviour('stdin_of_handle', async t => {
  const handle = await t.start('read a; echo got $a', stdin)
  if (!handle.sendStdin) await handle.kill()
  have(handle.sendStdin, 'sendStdin of a handle')
  await handle.sendStdin('by handle\n')
  equal((await handle.wait()).stdout, 'got by handle\n')
})
behaviour('stdin_bytes', async t => {
  have(mentions('sendStdin(pid: number, data: string | Uint8Array'), 'stdin as bytes')
  const handle = await t.start('head -c 4 | od -An -tx1', stdin)
  await t.sb.commands.sendStdin(handle.pid, new Uint8Array([0, 255, 1, 10]))
  equal((await handle.wait()).stdout, ' 00 ff 01 0a\n')
})
behaviour('stdin_much', async t => {
  const size = 3000000, part = '0123456789abcdef'.repeat(4096)
  const handle = await t.start(`head -c ${size} | sha256sum`, stdin)
  const text = part.repeat(Math.floor(size / part.length) + 1).slice(0, size)
  for (let at = 0; at < size; at += part.length) await t.sb.commands.sendStdin(handle.pid, text.slice(at, at + part.length))
  equal((await handle.wait()).stdout.split(' ')[0], createHash('sha256').update(text).digest('hex'))
})
behaviour('stdin_none', async t => {
  have(mentions('stdin?: boolean'), 'commands without stdin')
  equal(await t.out('cat; echo eof', { timeoutMs: 10000 }), 'eof\n')
})
behaviour('stdin_close', async t => {
  have(t.sb.commands.closeStdin, 'closeStdin')
  const handle = await t.start('cat; echo eof', stdin)
  await t.sb.commands.sendStdin(handle.pid, 'q\n')
  await t.sb.commands.closeStdin(handle.pid)
  equal((await handle.wait()).stdout, 'q\neof\n')
})
behaviour('stdin_stream', async () => skip('this version does not have it: stream_input (of Python)'))
behaviour('stdin_missing_pid', async t => { await raises(['NotFoundError'], () => t.sb.commands.sendStdin(MISSING, 'x')) })
behaviour('git', async t => {
  have(t.sb.git, 'git')
  const repo = `${t.dir}/repo`
  await t.sb.git.init(repo)
  await t.sb.files.write(`${repo}/a.txt`, '1')
  await t.sb.git.add(repo)
  await t.sb.git.commit(repo, 'first', { authorName: 'a', authorEmail: 'a@b.c' })
  check((await t.sb.git.status(repo)).isClean, 'not clean after the commit')
})
