package blocktarget

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// shape is what a client is told of a volume when it opens it.
type shape struct {
	size     int64
	readOnly bool
}

func (s shape) flags() uint16 {
	flags := uint16(flagHasFlags | flagSendFlush | flagSendFUA | flagSendTrim | flagSendWriteZeroes)
	if s.readOnly {
		flags |= flagReadOnly
	}
	return flags
}

// opener is what the handshake asks of the server.
type opener interface {
	// look tells of an export without opening it.
	look(Export) (shape, error)
	// open opens it; after an error nothing is open.
	open(Export) (shape, error)
}

// option is one option of the handshake.
type option struct {
	code uint32
	data []byte
}

// errAborted: the client ended the handshake in good order.
var errAborted = errors.New("the client ended the handshake")

// shake leads the server's half of a fixed newstyle handshake. It returns nil
// once an export is open and the client knows it.
func shake(rw io.ReadWriter, o opener) error {
	hello := binary.BigEndian.AppendUint64(nil, magicHello)
	hello = binary.BigEndian.AppendUint64(hello, magicOption)
	hello = binary.BigEndian.AppendUint16(hello, flagFixedNewstyle|flagNoZeroes)
	if _, err := rw.Write(hello); err != nil {
		return err
	}
	var flags [4]byte
	if _, err := io.ReadFull(rw, flags[:]); err != nil {
		return err
	}
	f := binary.BigEndian.Uint32(flags[:])
	if f&flagFixedNewstyle == 0 || f&^uint32(flagFixedNewstyle|flagNoZeroes) != 0 {
		return fmt.Errorf("client flags %#x: fixed newstyle is wanted: %w", f, errBroken)
	}
	for range maxOptions {
		q, err := readOption(rw)
		if err != nil {
			return err
		}
		if open, err := answerOption(rw, o, q); open || err != nil {
			return err
		}
	}
	return fmt.Errorf("more than %d options: %w", maxOptions, errBroken)
}

// readOption reads one option; the data of one that is too long is skipped, and
// nil.
func readOption(r io.Reader) (option, error) {
	var b [16]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return option{}, err
	}
	if m := binary.BigEndian.Uint64(b[:]); m != magicOption {
		return option{}, fmt.Errorf("an option begins with %#x: %w", m, errBroken)
	}
	q := option{code: binary.BigEndian.Uint32(b[8:])}
	length := binary.BigEndian.Uint32(b[12:])
	if length > maxPayload {
		return option{}, fmt.Errorf("an option of %d bytes: %w", length, errBroken)
	}
	if length > maxOption {
		_, err := io.CopyN(io.Discard, r, int64(length))
		return q, err
	}
	q.data = make([]byte, length)
	_, err := io.ReadFull(r, q.data)
	return q, err
}

// answerOption answers one option; open is true once the client is in.
func answerOption(w io.Writer, o opener, q option) (open bool, err error) {
	switch {
	case q.data == nil:
		return false, writeAnswer(w, q.code, repErrTooBig, []byte("the option has too much data"))
	case q.code == optExportName: // has no way to say no but to hang up
		return false, fmt.Errorf("the old NBD_OPT_EXPORT_NAME instead of NBD_OPT_GO: %w", errBroken)
	case q.code == optAbort:
		return false, errors.Join(writeAnswer(w, q.code, repAck, nil), errAborted)
	case q.code != optGo && q.code != optInfo:
		return false, writeAnswer(w, q.code, repErrUnsup, []byte("use NBD_OPT_GO"))
	}
	name, err := parseGo(q.data)
	if err != nil {
		return false, writeAnswer(w, q.code, repErrInvalid, []byte(err.Error()))
	}
	export, err := ParseExport(name)
	if err != nil {
		return false, writeAnswer(w, q.code, repErrInvalid, []byte(err.Error()))
	}
	ask := o.look
	if q.code == optGo {
		ask = o.open
	}
	s, err := ask(export)
	if err != nil {
		return false, writeAnswer(w, q.code, refusal(err), []byte(err.Error()))
	}
	return q.code == optGo, writeShape(w, q.code, s)
}

// refusal is the kind of answer that tells a client whether to try again:
// what is not a matter of rights may pass.
func refusal(err error) uint32 {
	if errors.Is(err, ErrDenied) {
		return repErrPolicy
	}
	return repErrShutdown
}

// parseGo reads the data of NBD_OPT_GO and NBD_OPT_INFO: the name, and which
// information is asked for; all there is is told anyway.
func parseGo(data []byte) (name string, err error) {
	bad := fmt.Errorf("the option's data is not of the form")
	if len(data) < 6 {
		return "", bad
	}
	n := binary.BigEndian.Uint32(data)
	if uint64(n) > uint64(len(data)-6) {
		return "", bad
	}
	rest := data[4+n:]
	if asked := int(binary.BigEndian.Uint16(rest)); len(rest) != 2+2*asked {
		return "", bad
	}
	return string(data[4 : 4+n]), nil
}

func writeShape(w io.Writer, code uint32, s shape) error {
	export := binary.BigEndian.AppendUint16(nil, infoExport)
	export = binary.BigEndian.AppendUint64(export, uint64(s.size))
	export = binary.BigEndian.AppendUint16(export, s.flags())
	block := binary.BigEndian.AppendUint16(nil, infoBlockSize)
	for _, size := range []uint32{minBlock, goodBlock, maxPayload} {
		block = binary.BigEndian.AppendUint32(block, size)
	}
	for _, info := range [][]byte{export, block} {
		if err := writeAnswer(w, code, repInfo, info); err != nil {
			return err
		}
	}
	return writeAnswer(w, code, repAck, nil)
}

func writeAnswer(w io.Writer, code, kind uint32, data []byte) error {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 20+len(data)), magicAnswer)
	b = binary.BigEndian.AppendUint32(b, code)
	b = binary.BigEndian.AppendUint32(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	_, err := w.Write(append(b, data...))
	return err
}
