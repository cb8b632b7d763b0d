// Package recordfs is a pass-through FUSE file system that logs each write to
// the files directly in it. The test bed can mount it beneath the directory of
// its storage target: the target keeps a write log of its own, but it is under
// test itself, and this log is of a process that it cannot reach.
//
// A record names the file, offset, length, time and the process that wrote. It
// does not name the DPU: only the target knows for whom it writes. So the two
// logs are judged together, see test/proof.
//
// It needs root.
package recordfs
