// Sandboxes: create, list, info, connect, time, pause, the end.
import { atLeast, behaviour, check, equal, have, mentions, plain, raises, skip, sleep } from './js_lib.mjs'

const MISSING = 'zzzz0000000000000000'
const ANY = ['SandboxError', 'NotFoundError', 'TimeoutError', 'InvalidArgumentError', 'TemplateError', 'AuthenticationError']
const mine = metadata => ({ query: { metadata } })
const hasQuery = mentions('SandboxListOpts')
const hasInfo = mentions('getInfo(')
const notRunning = async sb => !await sb.isRunning()
const pauser = sb => {
  const pause = (atLeast(2, 0, 0) && (sb.pause ?? sb.betaPause))
  have(pause, 'pause')
  return () => pause.call(sb)
}

behaviour('create_id', async t => check(/^[a-z0-9]{20}(-[a-z0-9]+)?$/.test(t.sb.sandboxId), t.sb.sandboxId))
behaviour('create_defaults', async t => {
  const sb = await t.Sandbox.create()
  try {
    equal(await t.out('echo made', {}, sb), 'made\n')
    if (hasInfo) {
      const info = await t.Sandbox.getInfo(sb.sandboxId)
      equal(Math.round((info.endAt - info.startedAt) / 10000), 30, 'tens of seconds it lives')
    }
  } finally { await sb.kill() }
})
behaviour('create_envs', t => t.sandbox({ envs: { ONE: '1', ODD: 'ž "q" $HOME \'x\'' } }, async sb =>
  equal(await t.out('printf \'%s|%s\' "$ONE" "$ODD"', {}, sb), '1|ž "q" $HOME \'x\'')))
behaviour('create_metadata', async t => {
  have(hasInfo, 'getInfo')
  const wanted = { plain: '1', 'With Space': 'ž & = %', empty: '' }
  await t.sandbox({ metadata: wanted }, async sb => equal((await t.Sandbox.getInfo(sb.sandboxId)).metadata, wanted, 'metadata'))
})
behaviour('create_oci_reference', t => t.sandbox({ template: t.oci }, async sb => {
  check((await t.out('cat /etc/os-release', {}, sb)).includes('ebian'))
  await sb.files.write('/tmp/x', 'in any image')
  equal(await t.out('cat /tmp/x', {}, sb), 'in any image')
}))
behaviour('create_unknown_template', async t => {
  const before = await t.ids()
  const e = await raises(ANY, () => t.make('there-is-no-such-template'))
  check(e.message.includes('there-is-no-such-template'), e.message)
  equal([...await t.ids()].filter(id => !before.has(id)), [], 'what a failed create left')
})
behaviour('create_bad_key', async t => {
  await raises([...ANY], () => t.make('base', { apiKey: t.bad }))
})
behaviour('create_secure', async t => {
  have(mentions('secure?: boolean'), 'secure')
  const url = `http://49983-${t.sb.sandboxId}.sbx.test/files?path=/etc/hostname`
  equal((await t.fetch(url))[0], 401, 'status without a token')
  equal((await t.fetch(url, 'GET', undefined, { 'x-access-token': 'x'.repeat(60) }))[0], 401, 'status with a wrong token')
})
behaviour('create_insecure', async t => {
  have(mentions('secure?: boolean'), 'secure')
  have(!atLeast(2, 51, 0), 'sandboxes without a token (its create is always secured)')
  await t.sandbox({ secure: false }, async sb => {
    equal(await t.out('echo open', {}, sb), 'open\n')
    equal((await t.fetch(`http://49983-${sb.sandboxId}.sbx.test/files?path=/etc/passwd&username=user`))[0], 200, 'status without a token')
  })
})
behaviour('create_without_internet', async t => {
  have(mentions('allowInternetAccess?'), 'allowInternetAccess')
  await t.sandbox({ allowInternetAccess: false }, async sb =>
    equal(await t.out("ls /sys/class/net | grep -v '^lo$' | wc -l", {}, sb), '0\n', 'ways out'))
})
behaviour('create_idempotent', async () => skip('this version does not have it: idempotency keys'))
behaviour('create_many_at_once', async t => {
  const made = await Promise.all(Array.from({ length: 5 }, () => t.make('base', { timeoutMs: 60000 })))
  try {
    equal(new Set(made.map(sb => sb.sandboxId)).size, 5, 'sandboxes')
    const got = await Promise.all(made.map(sb => t.out('hostname', {}, sb)))
    equal(got.map(x => x.trim()), made.map(sb => plain(sb.sandboxId)), 'their names')
  } finally { for (const sb of made) await sb.kill() }
})
behaviour('is_running', async t => equal(await t.sb.isRunning(), true))
behaviour('get_info', async t => {
  have(t.sb.getInfo, 'getInfo of a sandbox')
  const info = await t.sb.getInfo()
  equal(plain(info.sandboxId), plain(t.sb.sandboxId), 'id')
  equal(info.metadata, { tag: t.tag, odd: 'u 1&=%ž' }, 'metadata')
  check(info.startedAt < info.endAt && info.templateId, info)
  if ('state' in info) equal(info.state, 'running', 'state')
  if ('cpuCount' in info) check(info.cpuCount >= 1 && info.memoryMB >= 64 && /^\d+\.\d+\.\d+/.test(info.envdVersion), info)
})
behaviour('get_info_by_id', async t => {
  have(t.Sandbox.getInfo, 'getInfo')
  equal(plain((await t.Sandbox.getInfo(t.sb.sandboxId)).sandboxId), plain(t.sb.sandboxId))
})
behaviour('get_info_missing', async t => {
  have(t.Sandbox.getInfo, 'getInfo')
  const e = await raises(ANY, () => t.Sandbox.getInfo(MISSING))
  check(/404|not found/i.test(e.message), e.message)
})
behaviour('list_has_it', async t => check((await t.ids()).has(plain(t.sb.sandboxId))))
behaviour('list_by_metadata', async t => {
  have(hasQuery, 'filters')
  equal([...await t.ids(mine({ tag: t.tag, odd: 'u 1&=%ž' }))], [plain(t.sb.sandboxId)], 'found')
  equal([...await t.ids(mine({ tag: t.tag + 'x' }))], [], 'found by another value')
})
behaviour('list_by_state', async t => {
  have(atLeast(2, 0, 0), 'a filter of states')
  await t.sandbox({ metadata: { state: t.tag } }, async sb => {
    const of = async state => [...await t.ids({ query: { metadata: { state: t.tag }, ...(state ? { state } : {}) } })]
    equal([await of(['running']), await of(['paused'])], [[sb.sandboxId], []], 'running, paused')
    await pauser(sb)()
    equal([await of(['running']), await of(['paused']), await of()], [[], [sb.sandboxId], [sb.sandboxId]], 'running, paused, any, of a paused one')
  })
})
behaviour('list_in_pages', async t => {
  have(atLeast(2, 0, 0), 'pages')
  const query = { metadata: { pages: t.tag } }
  const made = []
  try {
    for (let i = 0; i < 3; i++) made.push(await t.make('base', { metadata: { pages: t.tag } }))
    const pages = t.Sandbox.list({ query, limit: 1 })
    const seen = []
    while (pages.hasNext) {
      const items = await pages.nextItems()
      check(items.length <= 1, items)
      seen.push(...items.map(one => one.sandboxId))
    }
    equal(seen.sort(), made.map(sb => sb.sandboxId).sort(), 'sandboxes of all pages')
    const first = t.Sandbox.list({ query, limit: 2 })
    await first.nextItems()
    equal((await t.Sandbox.list({ query, limit: 2, nextToken: first.nextToken }).nextItems()).length, 1, 'items behind a token')
  } finally { for (const sb of made) await sb.kill() }
})
behaviour('list_order', async t => {
  have(mentions(' order?: '), 'order')
  const made = []
  try {
    for (let i = 0; i < 2; i++) made.push(await t.make('base', { metadata: { order: t.tag } }))
    for (const [order, wanted] of [['asc', made], ['desc', [...made].reverse()]])
      equal((await t.items({ query: { metadata: { order: t.tag } }, order })).map(one => one.sandboxId), wanted.map(sb => sb.sandboxId), order)
  } finally { for (const sb of made) await sb.kill() }
})
behaviour('other_owner_sees_nothing', async t => {
  check(!(await t.ids({ apiKey: t.other })).has(plain(t.sb.sandboxId)), "another owner's list has it")
  if (atLeast(1, 5, 0)) await raises(ANY, () => t.Sandbox.connect(t.sb.sandboxId, { apiKey: t.other }))
  check(!await t.Sandbox.kill(t.sb.sandboxId, { apiKey: t.other }), "another owner's kill says it did")
  equal(await t.sb.isRunning(), true, 'running afterwards')
})
behaviour('connect_by_id', async t => {
  await t.sb.files.write(`${t.dir}/mark`, 'same')
  const again = await t.Sandbox.connect(t.sb.sandboxId)
  equal(plain(again.sandboxId), plain(t.sb.sandboxId), 'id')
  equal(await again.files.read(`${t.dir}/mark`), 'same')
  equal(await t.out('echo $GIVEN', {}, again), 'by create\n')
})
behaviour('connect_missing_sandbox', async t => {
  have(atLeast(1, 5, 0), 'a connect that asks the server')
  await raises(ANY, () => t.Sandbox.connect(MISSING))
})
behaviour('connect_never_shortens', async t => {
  have(mentions('SandboxConnectOpts') && atLeast(2, 1, 0), 'a timeout of connect')
  await t.sandbox({ timeoutMs: 500000 }, async sb => {
    const end = async () => (await sb.getInfo()).endAt.getTime()
    const before = await end()
    await t.Sandbox.connect(sb.sandboxId, { timeoutMs: 10000 })
    check(Math.abs(await end() - before) < 2000, 'its end moved')
    await t.Sandbox.connect(sb.sandboxId, { timeoutMs: 1000000 })
    check(await end() > before, 'its end did not move')
  })
})
behaviour('set_timeout', t => t.sandbox({ timeoutMs: 60000 }, async sb => {
  await sb.setTimeout(300000)
  if (hasInfo) {
    const info = await t.Sandbox.getInfo(sb.sandboxId)
    const lives = (info.endAt - info.startedAt) / 1000
    check(lives > 250 && lives < 330, `it lives ${lives} s`)
  }
  await sb.setTimeout(2000)
  await t.eventually('it ends', () => notRunning(sb), 20)
}))
behaviour('set_timeout_by_id', async t => {
  await t.Sandbox.setTimeout(t.sb.sandboxId, 600000)
  await raises(ANY, () => t.Sandbox.setTimeout(MISSING, 60000))
})
behaviour('timeout_ends_it', t => t.sandbox({ timeoutMs: 2000 }, async sb => {
  await t.eventually('it ends', () => notRunning(sb), 20)
  check(!(await t.ids()).has(plain(sb.sandboxId)), 'listed after its end')
}))
behaviour('timeout_ends_command', t => t.sandbox({ timeoutMs: 3000 }, async sb => {
  const began = Date.now()
  await raises([], () => t.run('sleep 60', {}, sb))
  check(Date.now() - began < 20000, 'the command outlived its sandbox')
}))
behaviour('pause_and_connect', async t => {
  pauser(t.sb)
  await t.sandbox({}, async sb => {
    await sb.files.write('/tmp/kept', 'kept')
    await sb.files.write('/tmp/count', '0')
    const handle = await t.start('for i in $(seq 300); do echo $i >/tmp/next; mv /tmp/next /tmp/count; sleep 0.1; done', {}, sb)
    await pauser(sb)()
    equal(await sb.isRunning(), false, 'running while paused')
    await sleep(1)
    const again = await t.Sandbox.connect(sb.sandboxId)
    equal(await again.isRunning(), true, 'running afterwards')
    equal(await again.files.read('/tmp/kept'), 'kept')
    const before = Number(await again.files.read('/tmp/count'))
    let now = before
    for (let i = 0; i < 20 && now === before; i++) {
      await sleep(0.5)
      now = Number(await again.files.read('/tmp/count'))
    }
    check(now > before, 'its process does not go on')
    await again.commands.kill(handle.pid)
  })
})
behaviour('pause_twice', async t => {
  pauser(t.sb)
  await t.sandbox({}, async sb => {
    check(await pauser(sb)() !== false, 'the first pause')
    check(!await pauser(sb)(), 'the second pause says it paused')
  })
})
behaviour('pause_missing', async t => {
  pauser(t.sb)
  await raises(ANY, () => (t.Sandbox.pause ?? t.Sandbox.betaPause).call(t.Sandbox, MISSING))
})
behaviour('paused_kill', async t => {
  pauser(t.sb)
  await t.sandbox({}, async sb => {
    await pauser(sb)()
    equal(await sb.kill() ?? true, true, 'kill of a paused one')
    await raises(ANY, () => t.Sandbox.connect(sb.sandboxId))
  })
})
behaviour('timeout_pauses', async t => {
  have(atLeast(2, 0, 0), 'pause at the end of its time')
  const sb = t.Sandbox.betaCreate
    ? await t.Sandbox.betaCreate('base', { timeoutMs: 6000, autoPause: true })
    : await t.make('base', { timeoutMs: 6000, lifecycle: { onTimeout: 'pause' } })
  try {
    await sb.files.write('/tmp/kept', 'kept')
    await t.eventually('it pauses', () => notRunning(sb), 20)
    equal(await (await t.Sandbox.connect(sb.sandboxId)).files.read('/tmp/kept'), 'kept')
  } finally { await sb.kill() }
})
behaviour('metrics', async t => {
  have(t.sb.getMetrics, 'getMetrics')
  const got = (await t.eventually('there are metrics', async () => { const m = await t.sb.getMetrics(); return m.length && m }, 20)).at(-1)
  check(got.cpuCount >= 1 && got.memTotal > 0 && got.cpuUsedPct >= 0, got)
})
behaviour('kill', async t => {
  const sb = await t.make()
  const first = await sb.kill(), second = await sb.kill()
  if (atLeast(2, 35, 0)) equal([first, second], [true, false], 'what kill gave, twice') // before: nothing
  check(!(await t.ids()).has(plain(sb.sandboxId)), 'listed after its end')
})
behaviour('kill_by_id', async t => {
  const sb = await t.make()
  equal(await t.Sandbox.kill(sb.sandboxId), true)
  equal(await t.Sandbox.kill(MISSING), false, 'kill of a missing one')
  equal(await sb.isRunning(), false, 'running')
})
behaviour('killed_refuses', async t => {
  const sb = await t.make()
  await sb.kill()
  equal(await sb.isRunning(), false, 'running')
  await raises(ANY, () => t.run('echo x', {}, sb))
  await raises(ANY, () => sb.files.read('/etc/passwd'))
  await raises(ANY, () => atLeast(1, 5, 0) ? t.Sandbox.connect(sb.sandboxId) : sb.setTimeout(5000))
})
behaviour('kill_during_run', async t => {
  const sb = await t.make()
  const running = t.run('echo begun; sleep 60', {}, sb)
  running.catch(() => {})
  await sleep(1)
  const began = Date.now()
  await sb.kill()
  await raises([], () => running)
  check(Date.now() - began < 10000, 'the command was not told')
})
