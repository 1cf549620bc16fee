/* The report that bothy-unpack writes to descriptor 1. Normative. The warden reads it
 * (src/warden/layers.c) and treats it as hostile: the process that writes it has parsed the layer.
 *
 * It consists of lines "key=value\n" and has at most REPORT_MAX bytes. The first line is
 * REPORT_FIRST, the last is REPORT_LAST: without it the report is torn. It is written once, at the
 * end, and only if the layer is good.
 *
 *   diff_id=<64 hex digits>        of the unpacked layer; equal to the one asked for
 *   entries= files= dirs= links= symlinks= fifos= whiteouts= opaques= devices= xattrs= acls=
 *   duplicates= aufs=              counts; devices, xattrs, acls, aufs count what was left out
 *   bytes=                         of file data written
 *   out=                           of the uncompressed tar
 *   opaque_root=0|1                1: nothing below this layer is visible (overlayfs ignores the
 *                                  mark on a layer's root, so the stack must be cut there)
 *   implicit=PATH                  a directory made because something in it was named; it has no
 *                                  metadata of its own and must not hide the one below it
 *   whiteout_dir=PATH              a directory that holds whiteouts (repeats are possible)
 *
 * PATH is relative to the layer's root, normalised, with every byte outside 0x21..0x7e and '%' as
 * %XX. Readers skip unknown keys.
 *
 * Descriptor 2 gets one line with the reason when the exit status is not 0. */
#pragma once

#define REPORT_FIRST "bothy-unpack=1"
#define REPORT_LAST  "end=1"
#define REPORT_MAX   (4u << 20)

enum unpack_exit {
    UNPACK_OK = 0,
    UNPACK_FAILED = 1,  /* a failure of its own, a wall that could not be built, a full disk */
    UNPACK_REFUSED = 2, /* the layer is broken, hostile, or beyond a limit */
    UNPACK_DIGEST = 3,  /* a good layer, but not the one asked for */
};
