// The behaviours of behaviours.txt, by the JavaScript SDK `e2b` of a directory.
//
//     node client.mjs DIRECTORY [TEXT]
//
// Settings and output are client.py's. Versions before 2.14.1 know no E2B_SANDBOX_URL: they talk TLS to hosts below sbx.test (front.py).
import { Client, Skip, VERSION, behaviours, plain } from './js_lib.mjs'
import './js_control.mjs'
import './js_ports.mjs'
import './js_process.mjs'
import './js_terminal.mjs'
import './js_files.mjs'
import './js_watch.mjs'
import './js_templates.mjs'

const env = process.env
const LIMIT = 90 // seconds a behaviour may take
const UNCLAIMED = (env.BOTHY_UNCLAIMED ?? '').split(' ')
const fresh = async t => {
  if (t.sb && await t.sb.isRunning().catch(() => false)) return
  t.sb = await t.make('base', { timeoutMs: 600000, metadata: { tag: t.tag, odd: 'u 1&=%ž' }, envs: { GIVEN: 'by create' } })
  // A server that runs commands beside itself would have its files changed.
  if ((await t.out('hostname')).trim() !== plain(t.sb.sandboxId)) {
    console.error('commands do not run in a sandbox of this server: nothing is tried')
    process.exit(1)
  }
}
const one = async (t, name, body) => {
  t.dir = `/tmp/m-${t.tag}/${name}`
  if (UNCLAIMED.includes(name)) return ['skipped', 'not claimed']
  let timer
  try {
    await Promise.race([body(t), new Promise((_, no) => { timer = setTimeout(() => no(new Error(`not within ${LIMIT} s`)), LIMIT * 1000) })])
    return ['passed', null]
  } catch (e) {
    if (e instanceof Skip) return ['skipped', e.message]
    if (env.BOTHY_TRACE) console.error(e)
    return ['failed', `${e?.name}: ${String(e?.message).slice(0, 400)}`]
  } finally { clearTimeout(timer) }
}
const say = line => process.stdout.write(JSON.stringify(line) + '\n')

const main = async only => {
  const t = new Client()
  let failed = true
  for (const [name, body] of behaviours) {
    if (!name.includes(only)) continue
    const began = Date.now()
    say({ name, result: 'begun' })
    let result, why
    try {
      if (failed) await fresh(t)
      ;[result, why] = await one(t, name, body)
    } catch (e) { [result, why] = ['failed', `no sandbox to try it in: ${String(e?.message).slice(0, 300)}`] }
    failed = result === 'failed'
    say({ name, result, why, ms: Date.now() - began })
  }
  await t.sb?.kill().catch(() => {})
}

process.on('unhandledRejection', () => {}) // what a behaviour awaits is looked at there
say({ version: VERSION.join('.'), flavour: 'js' })
await main(process.argv[3] ?? '')
process.exit(0)
