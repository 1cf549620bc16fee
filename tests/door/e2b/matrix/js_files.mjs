// Files: up, down, names, users, directories, signed URLs.
import { createHash, randomBytes } from 'node:crypto'
import { atLeast, behaviour, check, equal, have, mentions, raises, sleep } from './js_lib.mjs'

const ANY = ['SandboxError', 'NotFoundError', 'InvalidArgumentError', 'AuthenticationError', 'TimeoutError', 'FileNotFoundError']
const ODD_NAMES = ['sp ace.txt', 'ž€😀.txt', 'a+b&c=d%.txt', 'q"uo\'te.txt', 'semi;co:lon.txt', 'back\\slash', '#hash?query', ' lead', 'tab\there',
  '-dash', 'x'.repeat(200), '%2e%2e', '...']
const names = async (t, path) => (await t.sb.files.list(path)).map(e => e.name).sort()
const sha = data => createHash('sha256').update(data).digest('hex')
const buffer = bytes => bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength)
const same = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)) === 0

behaviour('write_text', async t => {
  const info = await t.sb.files.write(`${t.dir}/a.txt`, 'hello ž\n')
  equal([info.name, info.path], ['a.txt', `${t.dir}/a.txt`], 'what write gives')
  equal(await t.sb.files.read(`${t.dir}/a.txt`), 'hello ž\n')
  equal(await t.out(`cat ${t.dir}/a.txt; stat -c %U ${t.dir}/a.txt`), 'hello ž\nuser\n')
})
behaviour('write_bytes', async t => {
  const blob = Buffer.concat(Array(5000).fill(Buffer.from([...Array(256).keys()])))
  await t.sb.files.write(`${t.dir}/b`, buffer(blob))
  check(same(await t.sb.files.read(`${t.dir}/b`, { format: 'bytes' }), blob), 'other bytes came back')
  await t.sb.files.write(`${t.dir}/b2`, new Blob([blob]))
  check(same(await (await t.sb.files.read(`${t.dir}/b2`, { format: 'blob' })).arrayBuffer(), blob), 'another blob came back')
})
behaviour('write_stream', async t => {
  const blob = randomBytes(3000000)
  await t.sb.files.write(`${t.dir}/c`, new Blob([blob]).stream())
  equal((await t.out(`sha256sum <${t.dir}/c`)).split(' ')[0], sha(blob), 'digest inside')
})
behaviour('read_stream', async t => {
  await t.run(`mkdir -p ${t.dir}; seq 300000 >${t.dir}/d`)
  const parts = []
  for await (const part of await t.sb.files.read(`${t.dir}/d`, { format: 'stream' })) parts.push(Buffer.from(part))
  equal(sha(Buffer.concat(parts)), sha(Array.from({ length: 300000 }, (_, i) => `${i + 1}\n`).join('')), 'digest of what came')
})
behaviour('write_empty', async t => {
  await t.sb.files.write(`${t.dir}/e`, '')
  equal(await t.sb.files.read(`${t.dir}/e`), '')
})
behaviour('write_big', async t => {
  const blob = Buffer.concat(Array(t.big >> 20).fill(randomBytes(1 << 20)))
  await t.sb.files.write(`${t.dir}/big`, buffer(blob), { requestTimeoutMs: 90000 })
  equal((await t.out(`sha256sum <${t.dir}/big`)).split(' ')[0], sha(blob), 'digest inside')
  const got = await t.sb.files.read(`${t.dir}/big`, { format: 'bytes', requestTimeoutMs: 90000 })
  check(same(got, blob), `${got.length} bytes came back, others`)
  await t.sb.files.remove(`${t.dir}/big`)
})
const many = t => {
  have(mentions('WriteEntry'), 'writes of many files')
  return files => t.sb.files.write(files)
}
behaviour('write_many', async t => {
  const files = [...Array(30).keys()].map(i => ({ path: `${t.dir}/m/${i}`, data: i % 2 ? `${i}` : buffer(Buffer.from(`${i}`)) }))
  const got = await many(t)(files)
  equal(got.map(one => one.name), files.map((_, i) => `${i}`), 'what it gives')
  equal(await t.sb.files.read(`${t.dir}/m/17`), '17')
  equal(await t.out(`cat ${t.dir}/m/* | wc -c`), '50\n', 'bytes of all')
})
behaviour('write_makes_parents', async t => {
  await t.sb.files.write(`${t.dir}/x/y/z/f`, 'deep')
  equal(await t.out(`cat ${t.dir}/x/y/z/f; stat -c %U ${t.dir}/x/y`), 'deepuser\n')
})
behaviour('write_over', async t => {
  await t.sb.files.write(`${t.dir}/o`, 'a long text')
  await t.sb.files.write(`${t.dir}/o`, 'short')
  equal(await t.sb.files.read(`${t.dir}/o`), 'short')
})
behaviour('write_keeps_mode', async t => {
  await t.run(`mkdir -p ${t.dir}; echo '#!/bin/sh' >${t.dir}/s; chmod 755 ${t.dir}/s`)
  await t.sb.files.write(`${t.dir}/s`, '#!/bin/sh\necho ran\n')
  equal(await t.out(`${t.dir}/s`), 'ran\n')
})
behaviour('write_relative', async t => {
  await t.sb.files.write(`rel-${t.tag}/f`, 'home')
  equal(await t.out(`cat /home/user/rel-${t.tag}/f`), 'home')
  equal(await t.sb.files.read(`rel-${t.tag}/f`), 'home')
})
behaviour('odd_names', async t => {
  for (const name of ODD_NAMES) {
    await t.sb.files.write(`${t.dir}/${name}`, name)
    equal(await t.sb.files.read(`${t.dir}/${name}`), name, name)
  }
  equal(await names(t, t.dir), [...ODD_NAMES].sort(), 'the list')
  for (const name of ODD_NAMES) {
    check(await t.sb.files.exists(`${t.dir}/${name}`), `${name} is not there`)
    await t.sb.files.remove(`${t.dir}/${name}`)
  }
  equal(await names(t, t.dir), [], 'what is left')
})
behaviour('odd_names_many', async t => {
  const wanted = ODD_NAMES.filter(n => !/[\\"%\t]/.test(n))
  await many(t)(wanted.map(name => ({ path: `${t.dir}/${name}`, data: name })))
  equal(await names(t, t.dir), [...wanted].sort(), 'the list')
})
behaviour('write_as_root', async t => {
  await t.sb.files.write(`/root/${t.tag}`, "root's", { user: 'root' })
  equal(await t.out(`stat -c %U /root/${t.tag}`, { user: 'root' }), 'root\n')
  equal(await t.sb.files.read(`/root/${t.tag}`, { user: 'root' }), "root's")
})
behaviour('write_denied', async t => {
  await raises(ANY, () => t.sb.files.write('/root/denied', 'x'))
  equal(await t.out('ls /root | grep -c denied; true', { user: 'root' }), '0\n', 'files it made')
})
behaviour('read_denied', async t => {
  await t.run('echo hidden >/root/hidden; chmod 600 /root/hidden; chmod 711 /root', { user: 'root' })
  await raises(ANY, () => t.sb.files.read('/root/hidden'))
})
behaviour('write_unknown_user', async t => { await raises(ANY, () => t.sb.files.write(`${t.dir}/u`, 'x', { user: 'nosuchuser' })) })
behaviour('write_onto_directory', async t => { await raises(ANY, () => t.sb.files.write('/tmp', 'x')) })
behaviour('read_missing', async t => {
  const e = await raises(['NotFoundError'], () => t.sb.files.read('/no/such/file'))
  check(e.message.includes('/no/such/file'), e.message)
})
behaviour('read_directory', async t => { await raises(ANY, () => t.sb.files.read('/usr')) })
behaviour('read_proc', async t => check((await t.sb.files.read('/proc/self/status')).includes('PPid')))
behaviour('files_at_once', async t => {
  const numbers = [...Array(20).keys()]
  await Promise.all(numbers.map(i => t.sb.files.write(`${t.dir}/p${i}`, `${i}`.repeat(1000))))
  equal(await Promise.all(numbers.map(i => t.sb.files.read(`${t.dir}/p${i}`))), numbers.map(i => `${i}`.repeat(1000)), 'what came back')
})
behaviour('gzip', async t => {
  have(mentions('gzip?: boolean'), 'gzip')
  const text = 'zipped ž\n'.repeat(20000)
  await t.sb.files.write(`${t.dir}/z`, text, { gzip: true })
  equal(await t.out(`wc -c <${t.dir}/z`), `${Buffer.byteLength(text)}\n`, 'bytes inside')
  equal(await t.sb.files.read(`${t.dir}/z`, { gzip: true }), text)
})
behaviour('octet_stream', async t => {
  have(mentions('useOctetStream?'), 'useOctetStream')
  const blob = randomBytes(100000)
  for (const useOctetStream of [true, false]) {
    await t.sb.files.write(`${t.dir}/os`, buffer(blob), { useOctetStream })
    check(same(await t.sb.files.read(`${t.dir}/os`, { format: 'bytes' }), blob), `useOctetStream ${useOctetStream}`)
  }
})
behaviour('file_metadata', async t => {
  have(atLeast(2, 20, 0) && mentions('metadata?: Record<string, string>') && mentions('xattr'), 'metadata of files')
  await t.sb.files.write(`${t.dir}/md`, 'x', { metadata: { colour: 'green', n: '1' } })
  equal({ ...(await t.sb.files.getInfo(`${t.dir}/md`)).metadata }, { colour: 'green', n: '1' }, 'metadata')
})
behaviour('list_directory', async t => {
  await t.run(`mkdir -p ${t.dir}/sub/deep; echo 12345 >${t.dir}/f; ln -s f ${t.dir}/l; touch ${t.dir}/.hidden`)
  const got = (await t.sb.files.list(t.dir)).map(e => [e.name, e.type, e.path]).sort()
  equal(got.filter(e => e[0] !== 'l'), [['.hidden', 'file', `${t.dir}/.hidden`], ['f', 'file', `${t.dir}/f`], ['sub', 'dir', `${t.dir}/sub`]], 'entries')
  check(got.length === 4 || !atLeast(1, 13, 0), 'the link is missing') // those of the beginning leave out what they do not know
})
behaviour('list_depth', async t => {
  have(mentions('depth?: number'), 'depth')
  await t.run(`mkdir -p ${t.dir}/1/2/3; touch ${t.dir}/1/2/f`)
  for (const [depth, count] of [[1, 1], [2, 2], [3, 4]]) equal((await t.sb.files.list(t.dir, { depth })).length, count, `entries of depth ${depth}`)
  await raises(ANY, () => t.sb.files.list(t.dir, { depth: 0 }))
})
behaviour('list_many', async t => {
  await t.run(`mkdir -p ${t.dir}; cd ${t.dir}; seq -f 'file-%g' 2000 | xargs touch`)
  equal((await t.sb.files.list(t.dir)).length, 2000, 'entries')
})
behaviour('list_missing', async t => { await raises(['NotFoundError'], () => t.sb.files.list('/no/such/dir')) })
behaviour('list_of_file', async t => { await raises(ANY, () => t.sb.files.list('/etc/passwd')) })
behaviour('list_home', async t => {
  await t.sb.files.write('in-home', 'x')
  check((await names(t, '.')).includes('in-home'))
})
behaviour('exists', async t =>
  equal(await Promise.all(['/etc/passwd', '/etc', '/no/such', '/etc/passwd/below'].map(p => t.sb.files.exists(p))), [true, true, false, false]))
behaviour('file_info', async t => {
  have(t.sb.files.getInfo, 'getInfo of files')
  await t.sb.files.write(`${t.dir}/i`, '12345')
  await t.run(`chmod 640 ${t.dir}/i; ln -s i ${t.dir}/l`)
  const info = await t.sb.files.getInfo(`${t.dir}/i`)
  equal([info.name, info.path, info.type, Number(info.size), info.mode & 0o777, info.permissions, info.owner, info.group],
    ['i', `${t.dir}/i`, 'file', 5, 0o640, '-rw-r-----', 'user', 'user'], 'info')
  check(Math.abs(info.modifiedTime - Date.now()) < 300000, String(info.modifiedTime))
  equal((await t.sb.files.getInfo(t.dir)).type, 'dir', 'type of a directory')
  if (mentions('symlinkTarget?')) check(String((await t.sb.files.getInfo(`${t.dir}/l`)).symlinkTarget).endsWith('i'), 'no target of the link')
})
behaviour('file_info_missing', async t => {
  have(t.sb.files.getInfo, 'getInfo of files')
  await raises(['NotFoundError'], () => t.sb.files.getInfo('/no/such/file'))
})
behaviour('make_dir', async t => {
  equal([await t.sb.files.makeDir(`${t.dir}/a/b/c`), await t.sb.files.makeDir(`${t.dir}/a/b/c`)], [true, false], 'made, and made again')
  equal(await t.out(`stat -c '%U %F' ${t.dir}/a/b/c`), 'user directory\n')
})
behaviour('make_dir_over_file', async t => {
  await t.sb.files.write(`${t.dir}/f`, 'x')
  await raises(ANY, () => t.sb.files.makeDir(`${t.dir}/f/below`))
})
behaviour('make_dir_denied', async t => {
  await raises(ANY, () => t.sb.files.makeDir('/usr/denied'))
  equal(await t.sb.files.makeDir(`/usr/${t.tag}`, { user: 'root' }), true, 'as root')
})
behaviour('rename', async t => {
  await t.sb.files.write(`${t.dir}/old`, 'moved')
  const info = await t.sb.files.rename(`${t.dir}/old`, `${t.dir}/new`)
  equal([info.name, info.path, info.type], ['new', `${t.dir}/new`, 'file'], 'what it gives')
  equal(await t.sb.files.read(`${t.dir}/new`), 'moved')
  equal(await t.sb.files.exists(`${t.dir}/old`), false, 'the old name')
})
behaviour('rename_directory', async t => {
  await t.sb.files.write(`${t.dir}/one/f`, 'inside')
  await t.sb.files.rename(`${t.dir}/one`, `${t.dir}/two`)
  equal(await t.sb.files.read(`${t.dir}/two/f`), 'inside')
})
behaviour('rename_missing', async t => { await raises(['NotFoundError'], () => t.sb.files.rename(`${t.dir}/nope`, `${t.dir}/x`)) })
behaviour('remove', async t => {
  await t.run(`mkdir -p ${t.dir}/tree/a; touch ${t.dir}/tree/a/f ${t.dir}/f; ln -s /etc ${t.dir}/tree/l`)
  await t.sb.files.remove(`${t.dir}/f`)
  await t.sb.files.remove(`${t.dir}/tree`)
  equal(await names(t, t.dir), [], 'what is left')
  check(await t.sb.files.exists('/etc/passwd'), 'a link was followed')
})
behaviour('remove_missing', async t => { await t.sb.files.remove(`${t.dir}/nope`) })

const signs = () => have(mentions('useSignature'), 'signed URLs')
const signed = mentions('useSignature?') ? { useSignature: true } : {} // asked for, until 2.0
const until = s => ({ ...signed, useSignatureExpiration: s })
behaviour('signed_download', async t => {
  signs()
  await t.sb.files.write(`${t.dir}/s ž+.txt`, 'signed')
  for (const options of [signed, until(60000), { ...signed, user: 'root' }])
    equal(await t.fetch(await t.sb.downloadUrl(`${t.dir}/s ž+.txt`, options)), [200, 'signed'], `answer for ${JSON.stringify(options)}`)
})
behaviour('signed_upload', async t => {
  signs()
  const body = '--B\r\nContent-Disposition: form-data; name="file"; filename="any"\r\n\r\nuploaded\r\n--B--\r\n'
  const [status, answer] = await t.fetch(await t.sb.uploadUrl(`${t.dir}/up.txt`, signed), 'POST', body, { 'content-type': 'multipart/form-data; boundary=B' })
  equal(status, 200, `status (${answer})`)
  equal(await t.sb.files.read(`${t.dir}/up.txt`), 'uploaded')
})
behaviour('signed_wrong', async t => {
  signs()
  await t.sb.files.write(`${t.dir}/s`, 'signed')
  const url = await t.sb.downloadUrl(`${t.dir}/s`, signed)
  equal((await t.fetch(url.replace('signature=v1_', 'signature=v1_x')))[0], 401, 'status of a changed signature')
  equal((await t.fetch(url.replace('%2Fs&', '%2Ft&').replace('/s&', '/t&').replace(/%2Fs$/, '%2Ft')))[0], 401, 'status of a changed path')
  equal((await t.fetch(url, 'POST', '', { 'content-type': 'application/octet-stream' }))[0], 401, 'status of a write')
})
behaviour('signed_expired', async t => {
  signs()
  await t.sb.files.write(`${t.dir}/s`, 'signed')
  const url = await t.sb.downloadUrl(`${t.dir}/s`, until(1)) // a number of seconds, or milliseconds: over either way
  await sleep(2.5)
  equal((await t.fetch(url))[0], 401, 'status')
})
