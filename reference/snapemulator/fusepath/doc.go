// Package fusepath is the emulator's data path with a fence that holds: each
// namespace is a file in a FUSE file system of the emulator's own, with a loop
// device over it. Every read and write of the host passes through the file, so
// the emulator can end the host's I/O at once, whatever the host has mounted.
//
// It needs root: mount(2), loop devices, mknod(2). It execs no program.
package fusepath
