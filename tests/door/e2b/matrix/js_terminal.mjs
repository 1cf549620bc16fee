// Terminals.
import { behaviour, check, equal, have, raises, skip, sleep } from './js_lib.mjs'

const MISSING = 2000000000
const bytes = text => new TextEncoder().encode(text)

class Terminal {
  got = []
  constructor(t) { this.t = t }
  onData = d => { this.got.push(Buffer.from(d)) }
  async open(options = {}) {
    this.handle = await this.t.sb.pty.create({ cols: 100, rows: 30, onData: this.onData, ...options })
    return this
  }
  send(text) { return this.t.sb.pty.sendInput(this.handle.pid, bytes(text)) }
  async end() {
    await this.handle.wait().catch(() => {})
    return Buffer.concat(this.got).toString()
  }
}
const open = (t, options) => new Terminal(t).open(options)

behaviour('pty', async t => {
  const terminal = await open(t)
  await terminal.send('stty size; tty; echo $((6*7)); exit 0\n')
  const screen = await terminal.end()
  for (const part of ['30 100', '/dev/pts/', '42']) check(screen.includes(part), screen)
})
behaviour('pty_resize', async t => {
  const terminal = await open(t)
  await t.sb.pty.resize(terminal.handle.pid, { cols: 120, rows: 40 })
  await terminal.send('stty size; exit 0\n')
  check((await terminal.end()).includes('40 120'))
})
behaviour('pty_options', async t => {
  const terminal = await open(t, { cwd: '/usr', user: 'root', envs: { MARK: 'm1' } })
  await terminal.send('echo [$(pwd) $(id -u) $MARK $TERM]; exit 0\n')
  const screen = await terminal.end()
  check(screen.includes('[/usr 0 m1 xterm-256color]') || screen.includes('[/usr 0 m1 xterm]'), screen)
})
behaviour('pty_interrupt', async t => {
  const terminal = await open(t)
  await terminal.send('sleep 60\n')
  await sleep(1)
  await terminal.send('\x03')
  await terminal.send('echo st$((1))ll; exit 0\n')
  check((await terminal.end()).includes('st1ll'))
})
behaviour('pty_unicode', async t => {
  const terminal = await open(t)
  await terminal.send('printf \'%s\\n\' "<ž€😀>"; exit 0\n')
  check((await terminal.end()).includes('<ž€😀>'))
})
behaviour('pty_kill', async t => {
  const terminal = await open(t)
  equal(await t.sb.pty.kill(terminal.handle.pid), true, 'kill')
  await terminal.end()
  equal(await t.sb.pty.kill(MISSING), false, 'kill of a missing one')
})
behaviour('pty_connect', async t => {
  have(t.sb.pty.connect, 'connect of a terminal')
  const terminal = await open(t)
  await terminal.handle.disconnect()
  const again = new Terminal(t)
  again.handle = await t.sb.pty.connect(terminal.handle.pid, { onData: again.onData })
  await again.send('echo ag$((1))in; exit 0\n')
  check((await again.end()).includes('ag1in'))
})
behaviour('pty_stream_input', async () => skip('this version does not have it: stream_input (of Python)'))
behaviour('pty_missing_pid', async t => {
  await raises([], () => t.sb.pty.sendInput(MISSING, bytes('x')))
  await raises([], () => t.sb.pty.resize(MISSING, { cols: 1, rows: 1 }))
})
