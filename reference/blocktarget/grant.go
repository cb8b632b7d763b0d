package blocktarget

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/moor-storage/moor/reference/blocktarget/admission"
)

// ErrDenied means that, by the word of the target, this DPU has no right to the volume. It is
// final: only a new grant helps.
var ErrDenied = errors.New("permission denied")

// Grant is the right of one DPU to one volume.
type Grant struct {
	// File is the path of the volume's data at the target.
	File string
	// TokenHash is HashToken of the token that opens it.
	TokenHash string
	// ReadOnly refuses every change.
	ReadOnly bool
	// Limits bound the volume, over all its users.
	Limits admission.Limits
	// Fenced: every epoch below it is over, and what is opened without an epoch
	// changes nothing. 0: the volume was never fenced.
	Fenced int64
}

// The least limits that leave all I/O that a Device can have waiting at once
// (maxInFlight pieces of 1 MiB, after a pause) time to end before it gives up.
const (
	LeastBytesPerSecond = 8 << 20
	LeastIOPS           = 16
)

// Grants says who may open what. It is asked at every opening, so it has to be
// the truth of that instant, not a memory of it.
type Grants interface {
	// Grant returns the right of node to the volume; ErrDenied, with the reason, if
	// it has none. Any other error means that it could not be found out.
	Grant(volume, node string) (Grant, error)
}

// Export is what a DPU opens. Its text holds a secret: it never goes into a log.
type Export struct {
	Volume, Node, Token string
	// Epoch under which it is opened; 0: none.
	Epoch int64
}

// String is the name by which the export is asked for, "<volume>@<node>#<token>", and
// "!<epoch>" after it if there is one.
func (e Export) String() string {
	name := e.Volume + "@" + e.Node + "#" + e.Token
	if e.Epoch > 0 {
		name += "!" + strconv.FormatInt(e.Epoch, 10)
	}
	return name
}

// At is the export under another epoch.
func (e Export) At(epoch int64) Export {
	e.Epoch = epoch
	return e
}

// Fingerprint tells exports apart without telling the token. It is the same under
// every epoch.
func (e Export) Fingerprint() string { return digest("export", e.At(0).String())[:16] }

// ParseExport reads the name of an export. The error does not repeat it.
func ParseExport(name string) (Export, error) {
	volume, rest, ok := strings.Cut(name, "@")
	at := strings.LastIndexByte(rest, '#')
	if !ok || at < 0 {
		return Export{}, fmt.Errorf("the name of an export is <volume>@<dpu>#<token>")
	}
	token, under, has := strings.Cut(rest[at+1:], "!")
	e := Export{Volume: volume, Node: rest[:at], Token: token}
	if has {
		var err error
		if e.Epoch, err = strconv.ParseInt(under, 10, 64); err != nil || e.Epoch <= 0 {
			return Export{}, fmt.Errorf("the epoch of an export is a number from 1")
		}
	}
	if e.Volume == "" || e.Node == "" || e.Token == "" {
		return Export{}, fmt.Errorf("the name of an export is <volume>@<dpu>#<token>, none of them empty")
	}
	return e, nil
}

// HashToken is what is stored of a token: a token has 128 random bits, so a
// plain hash of it cannot be guessed back.
func HashToken(token string) string { return digest("token", token) }

func digest(what, text string) string {
	sum := sha256.Sum256([]byte("moor block target " + what + "\x00" + text))
	return hex.EncodeToString(sum[:])
}

// opens reports whether the token is the grant's.
func (g Grant) opens(token string) bool {
	return subtle.ConstantTimeCompare([]byte(g.TokenHash), []byte(HashToken(token))) == 1
}
