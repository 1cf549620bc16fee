// Snapshots, forks, templates; and what is not there.
import { behaviour, check, e2b, equal, have, raises } from './js_lib.mjs'

const ANY = ['SandboxError', 'NotFoundError', 'InvalidArgumentError', 'TemplateError']

behaviour('snapshot', async t => {
  have(t.sb.createSnapshot, 'snapshots')
  await t.sandbox({}, async sb => {
    await sb.files.write('/home/user/kept', 'kept')
    const made = await sb.createSnapshot()
    const pages = t.Sandbox.listSnapshots(), listed = []
    while (pages.hasNext) listed.push(...await pages.nextItems())
    check(listed.some(one => one.snapshotId === made.snapshotId), listed)
    await sb.files.write('/home/user/kept', 'changed')
    await t.sandbox({ template: made.snapshotId }, async child => equal(await child.files.read('/home/user/kept'), 'kept', 'the file of the snapshot'))
    equal([await t.Sandbox.deleteSnapshot(made.snapshotId), await t.Sandbox.deleteSnapshot(made.snapshotId)], [true, false], 'deletion, twice')
  })
})
behaviour('fork', async t => {
  have(t.sb.fork, 'fork')
  await t.sandbox({}, async sb => {
    await sb.files.write('/home/user/f', "parent's")
    const children = await sb.fork({ count: 3 })
    try {
      equal(new Set(children.map(c => c.sandboxId)).size, 3, 'children')
      for (const [i, child] of children.entries()) {
        equal(await child.files.read('/home/user/f'), "parent's")
        await child.files.write('/home/user/f', `${i}`)
      }
      equal(await Promise.all(children.map(c => c.files.read('/home/user/f'))), ['0', '1', '2'], 'apart')
      equal(await sb.files.read('/home/user/f'), "parent's")
    } finally { for (const child of children) await child.kill?.() }
  })
})
const builder = () => {
  have(e2b.Template, 'templates')
  return e2b.Template
}
const build = (recipe, name, options) => builder().build.length >= 3 || builder().exists
  ? builder().build(recipe, name, options) : builder().build(recipe, { alias: name, ...options })
behaviour('template_build', async t => {
  const Template = builder()
  const name = `matrix-${t.tag}-j`
  await build(Template().fromImage(t.oci).runCmd('echo built >/built', { user: 'root' }).setEnvs({ BAKED: 'yes' }).setWorkdir('/srv'), name, { cpuCount: 1, memoryMB: 512 })
  await t.sandbox({ template: name }, async sb => equal(await t.out('cat /built; echo $BAKED; pwd', {}, sb), 'built\nyes\n/srv\n'))
})
behaviour('template_build_fails', async t => {
  const Template = builder()
  const e = await raises(['BuildError'], () => build(Template().fromImage(t.oci).runCmd('echo reason >&2; exit 7'), `fails-${t.tag}`, {}))
  check(e.message.includes('7'), e.message)
  await raises(ANY, () => t.make(`fails-${t.tag}`))
})
behaviour('template_exists', async () => {
  const Template = builder()
  const method = Template.exists ?? Template.aliasExists
  have(method, 'exists of templates')
  equal(await method.call(Template, 'there-is-no-such-template'), false)
})
behaviour('update_network', async t => {
  have(t.sb.updateNetwork, 'updateNetwork')
  await t.sandbox({}, sb => sb.updateNetwork({ denyOut: ['0.0.0.0/0'] }))
})
behaviour('volumes_are_refused', async () => {
  have(e2b.Volume, 'volumes')
  const e = await raises([], () => e2b.Volume.create('v'))
  check(/501|not served/.test(e.message), e.message)
})
behaviour('secrets_are_refused', async () => {
  have(e2b.Secret, 'secrets')
  const e = await raises([], () => e2b.Secret.create('s', 'v'))
  check(/501|not served/.test(e.message), e.message)
})
