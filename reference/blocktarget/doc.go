// Package blocktarget serves volumes to DPUs over TCP, so that the right to
// write can be taken back at the storage: when Revoke has answered, no write of
// that DPU reaches the volume any more, wherever the DPU is and whatever it does.
//
// The protocol is a subset of NBD (fixed newstyle handshake, NBD_OPT_GO, simple
// replies; https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md),
// so standard tools can talk to a target. Server and Device are its two ends,
// Admin reaches a server from the process that gives and takes rights.
//
// It never decides who may open a volume: Grants does.
package blocktarget
