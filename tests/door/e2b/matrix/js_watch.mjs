// Watching directories.
import { behaviour, check, equal, have, mentions, raises, sleep } from './js_lib.mjs'

class Watch {
  got = []
  constructor(t) { this.t = t }
  async of(path, options = {}) {
    this.handle = await this.t.sb.files.watchDir(path, e => { this.got.push(e) }, options)
    return this
  }
  async until(name, ...kinds) {
    return (await this.t.eventually(`${kinds} of ${name}`, async () => { const e = this.got.filter(e => e.name === name && kinds.includes(e.type)); return e.length && e }))[0]
  }
  stop() { return this.handle.stop() }
}
const watch = (t, path, options) => new Watch(t).of(path, options)

behaviour('watch', async t => {
  await t.sb.files.makeDir(t.dir)
  const seen = await watch(t, t.dir)
  await t.sb.files.write(`${t.dir}/new`, '1')
  await seen.until('new', 'create')
  await seen.until('new', 'write')
  await t.run(`chmod 600 ${t.dir}/new`)
  await seen.until('new', 'chmod')
  await t.sb.files.rename(`${t.dir}/new`, `${t.dir}/ž newer`)
  await seen.until('new', 'rename')
  await seen.until('ž newer', 'create')
  await t.sb.files.remove(`${t.dir}/ž newer`)
  await seen.until('ž newer', 'remove')
  await seen.stop()
})
behaviour('watch_recursive', async t => {
  have(mentions('recursive?: boolean'), 'recursive')
  await t.run(`mkdir -p ${t.dir}/a/b`)
  const seen = await watch(t, t.dir, { recursive: true })
  await t.sb.files.write(`${t.dir}/a/b/deep`, '1')
  await seen.until('a/b/deep', 'create', 'write')
  await t.run(`mkdir ${t.dir}/a/later; sleep 0.5; touch ${t.dir}/a/later/f`)
  await seen.until('a/later/f', 'create', 'write')
  await seen.stop()
})
behaviour('watch_not_recursive', async t => {
  await t.run(`mkdir -p ${t.dir}/a`)
  const seen = await watch(t, t.dir)
  await t.run(`touch ${t.dir}/a/below; sleep 0.3; touch ${t.dir}/mark`)
  await seen.until('mark', 'create')
  check(!seen.got.some(e => e.name.includes('below')), seen.got)
  await seen.stop()
})
behaviour('watch_entry', async t => {
  have(mentions('includeEntry?'), 'includeEntry')
  await t.sb.files.makeDir(t.dir)
  const seen = await watch(t, t.dir, { includeEntry: true })
  await t.sb.files.write(`${t.dir}/new`, '123')
  const event = await seen.until('new', 'create', 'write')
  check(!event.entry || event.entry.path === `${t.dir}/new`, event)
  check(seen.got.some(e => e.entry), 'no event has an entry')
  await seen.stop()
})
behaviour('watch_missing', async t => { await raises(['NotFoundError'], () => watch(t, '/no/such/dir')) })
behaviour('watch_stopped', async t => {
  await t.sb.files.makeDir(t.dir)
  const seen = await watch(t, t.dir)
  await seen.stop()
  await t.run(`touch ${t.dir}/after`)
  await sleep(0.5)
  equal(seen.got, [], 'events after the stop')
})
behaviour('watch_much', async t => {
  await t.sb.files.makeDir(t.dir)
  const seen = await watch(t, t.dir)
  await t.run(`cd ${t.dir}; seq -f 'n%g' 200 | xargs touch; sleep 0.5; touch last`)
  await seen.until('last', 'create')
  equal(new Set(seen.got.map(e => e.name).filter(n => n.startsWith('n'))).size, 200, 'names that were told')
  await seen.stop()
})
