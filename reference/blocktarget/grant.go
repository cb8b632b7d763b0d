package blocktarget

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
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
}

// String is the name by which the export is asked for, "<volume>@<node>#<token>".
func (e Export) String() string { return e.Volume + "@" + e.Node + "#" + e.Token }

// Fingerprint tells exports apart without telling the token.
func (e Export) Fingerprint() string { return digest("export", e.String())[:16] }

// ParseExport reads the name of an export. The error does not repeat it.
func ParseExport(name string) (Export, error) {
	volume, rest, ok := strings.Cut(name, "@")
	at := strings.LastIndexByte(rest, '#')
	if !ok || at < 0 {
		return Export{}, fmt.Errorf("the name of an export is <volume>@<dpu>#<token>")
	}
	e := Export{Volume: volume, Node: rest[:at], Token: rest[at+1:]}
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
