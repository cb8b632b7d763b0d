package blocktarget

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// DefaultPort is the TCP port that IANA gave to NBD.
const DefaultPort = 10809

// The numbers of NBD's doc/proto.md, under the names that they have there.
const (
	magicHello  uint64 = 0x4e42444d41474943 // NBDMAGIC
	magicOption uint64 = 0x49484156454F5054 // IHAVEOPT
	magicAnswer uint64 = 0x3e889045565a9

	flagFixedNewstyle = 1 << 0
	flagNoZeroes      = 1 << 1

	optExportName = 1
	optAbort      = 2
	optInfo       = 6
	optGo         = 7

	repAck         uint32 = 1
	repInfo        uint32 = 3
	repErr         uint32 = 1 << 31
	repErrUnsup           = repErr + 1
	repErrPolicy          = repErr + 2
	repErrInvalid         = repErr + 3
	repErrShutdown        = repErr + 7
	repErrTooBig          = repErr + 9

	infoExport    = 0
	infoBlockSize = 3

	flagHasFlags        = 1 << 0
	flagReadOnly        = 1 << 1
	flagSendFlush       = 1 << 2
	flagSendFUA         = 1 << 3
	flagSendTrim        = 1 << 5
	flagSendWriteZeroes = 1 << 6

	magicRequest uint32 = 0x25609513
	magicReply   uint32 = 0x67446698

	cmdRead        = 0
	cmdWrite       = 1
	cmdDisconnect  = 2
	cmdFlush       = 3
	cmdTrim        = 4
	cmdWriteZeroes = 6

	cmdFlagFUA    = 1 << 0
	cmdFlagNoHole = 1 << 1
)

const (
	// maxPayload is the most data of one request, in bytes: what proto.md
	// tells clients to stay below.
	maxPayload = 32 << 20
	// maxOption bounds the data of one option in bytes: an export name has
	// at most 4096, and some requests for information follow it.
	maxOption = 8 << 10
	// maxOptions bounds the options of one handshake.
	maxOptions = 32
	// minBlock and goodBlock are what a client is told of block sizes.
	minBlock, goodBlock = 1, 4096

	requestLength = 28
	replyLength   = 16
)

// errBroken: the other end sends what is no NBD; the connection cannot go on.
var errBroken = errors.New("broken protocol")

// request is one command of the transmission phase, less the data.
type request struct {
	flags   uint16
	command uint16
	cookie  uint64
	offset  uint64
	length  uint32
}

// changes reports whether the command can change the volume.
func (q request) changes() bool {
	return q.command == cmdWrite || q.command == cmdTrim || q.command == cmdWriteZeroes
}

func (q request) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, magicRequest)
	b = binary.BigEndian.AppendUint16(b, q.flags)
	b = binary.BigEndian.AppendUint16(b, q.command)
	b = binary.BigEndian.AppendUint64(b, q.cookie)
	b = binary.BigEndian.AppendUint64(b, q.offset)
	return binary.BigEndian.AppendUint32(b, q.length)
}

// readRequest reads one request. An end of input before its first byte is
// io.EOF as it is.
func readRequest(r io.Reader) (request, error) {
	var b [requestLength]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return request{}, err
	}
	if m := binary.BigEndian.Uint32(b[:]); m != magicRequest {
		return request{}, fmt.Errorf("a request begins with %#x: %w", m, errBroken)
	}
	return request{
		flags:   binary.BigEndian.Uint16(b[4:]),
		command: binary.BigEndian.Uint16(b[6:]),
		cookie:  binary.BigEndian.Uint64(b[8:]),
		offset:  binary.BigEndian.Uint64(b[16:]),
		length:  binary.BigEndian.Uint32(b[24:]),
	}, nil
}

// appendReply writes the head of a simple reply.
func appendReply(b []byte, cookie uint64, errno uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, magicReply)
	b = binary.BigEndian.AppendUint32(b, errno)
	return binary.BigEndian.AppendUint64(b, cookie)
}

// readReply reads the head of a simple reply.
func readReply(r io.Reader) (cookie uint64, errno uint32, err error) {
	var b [replyLength]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, 0, err
	}
	if m := binary.BigEndian.Uint32(b[:]); m != magicReply {
		return 0, 0, fmt.Errorf("a reply begins with %#x: %w", m, errBroken)
	}
	return binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[4:]), nil
}

// errnoOf is the number that tells of err; NBD's error numbers are Linux's.
func errnoOf(err error) uint32 {
	if err == nil {
		return 0
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		switch errno {
		case syscall.EPERM, syscall.EIO, syscall.ENOMEM, syscall.EINVAL, syscall.ENOSPC,
			syscall.EOVERFLOW, syscall.ENOTSUP, syscall.ESHUTDOWN:
			return uint32(errno)
		case syscall.EDQUOT, syscall.EFBIG:
			return uint32(syscall.ENOSPC)
		}
	}
	return uint32(syscall.EIO)
}
