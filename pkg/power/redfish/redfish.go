// Package redfish is the power of a machine whose BMC speaks Redfish, through gofish.
//
// Each call is one short conversation with HTTP's basic authentication: BMCs have few
// sessions, and one that is left open keeps others out.
package redfish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/pkg/power"
)

// DefaultTimeout bounds one call: BMCs answer within 0.1 to 10 s, and a call asks a handful
// of questions.
const DefaultTimeout = 20 * time.Second

// Config says where a BMC is, and of which machine it is.
type Config struct {
	// Endpoint is https://host or https://host:port.
	Endpoint string
	// System is the id of the machine in the collection of systems, or a part of it. Empty:
	// the one whose serial number is on record, or the only one.
	System string
	// Want is the machine that is on record. Nothing is done to any other.
	Want power.Identity
	// Username and Password for basic authentication.
	Username, Password string
	// CA are certificates in PEM by which the BMC's is checked; empty: the system's.
	CA []byte
	// Insecure: the BMC's certificate is not checked. What stands between can read the
	// password then, and answer in its place.
	Insecure bool
	// Certificate is the client's own, nil if the BMC asks for none.
	Certificate *tls.Certificate
	// Timeout of one call; 0: DefaultTimeout.
	Timeout time.Duration
	// Clock stamps readings; nil: the machine's.
	Clock clock.PassiveClock
}

// BMC is a machine by its BMC.
type BMC struct {
	c      Config
	client *http.Client
	// calls lets one call at a time through: BMCs are slow.
	calls sync.Mutex
}

var _ power.Machine = (*BMC)(nil)

// New returns the machine of a BMC, and asks it nothing. It is an error if the
// configuration cannot work.
func New(c Config) (*BMC, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("address %q of a BMC: https://host or https://host:port is possible", redact(c.Endpoint, c.Password))
	}
	if refused := c.Want.Refuse(c.Want); refused != "" {
		return nil, fmt.Errorf("BMC %s: %s", u.Host, refused)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure} //nolint:gosec // a person has asked for it, in the object
	if len(c.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, fmt.Errorf("BMC %s: its CA holds no certificate in PEM", u.Host)
		}
	}
	if c.Certificate != nil {
		config.Certificates = []tls.Certificate{*c.Certificate}
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.Endpoint = "https://" + u.Host
	return &BMC{c: c, client: &http.Client{Transport: guard{
		host: u.Host, next: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true},
	}}}, nil
}

// Read implements power.Machine.
func (b *BMC) Read(ctx context.Context) (out power.Reading, err error) {
	err = b.talk(ctx, "read the state of", func(s *schemas.ComputerSystem, at time.Time) (err error) {
		out, err = reading(s, at)
		return err
	})
	return out, err
}

// PowerOff implements power.Machine.
func (b *BMC) PowerOff(ctx context.Context) error {
	return b.act(ctx, "switch off", schemas.ForceOffResetType, schemas.OffPowerState)
}

// Restart implements power.Machine.
func (b *BMC) Restart(ctx context.Context) error {
	return b.act(ctx, "reset", schemas.ForceRestartResetType, "")
}

// PowerOn implements power.Machine.
func (b *BMC) PowerOn(ctx context.Context) error {
	return b.act(ctx, "switch on", schemas.OnResetType, schemas.OnPowerState)
}

// act asks for a reset of the machine that is on record. Some BMCs refuse what is so
// already, which is as good as accepted.
func (b *BMC) act(ctx context.Context, verb string, reset schemas.ResetType, already schemas.PowerState) error {
	return b.talk(ctx, verb, func(s *schemas.ComputerSystem, _ time.Time) error {
		if refused := b.c.Want.Refuse(identity(s)); refused != "" {
			return fmt.Errorf("%w: %s", power.ErrOtherMachine, refused)
		}
		_, err := s.Reset(reset)
		if err != nil && status(err) >= 400 && status(err) != http.StatusUnauthorized && already != "" && s.PowerState == already {
			return nil
		}
		return err
	})
}

// talk is one conversation about the system, within the timeout.
func (b *BMC) talk(ctx context.Context, verb string, do func(s *schemas.ComputerSystem, at time.Time) error) error {
	b.calls.Lock()
	defer b.calls.Unlock()
	ctx, cancel := context.WithTimeout(ctx, b.c.Timeout)
	defer cancel()
	at := b.c.Clock.Now()
	err := func() error {
		client, err := gofish.ConnectContext(ctx, gofish.ClientConfig{
			Endpoint: b.c.Endpoint, Username: b.c.Username, Password: b.c.Password, BasicAuth: true, HTTPClient: b.client, NoModifyTransport: true,
		})
		if err != nil {
			return err
		}
		systems, err := client.Service.Systems()
		if err != nil {
			return err
		}
		system, err := b.choose(systems)
		if err != nil {
			return err
		}
		return do(system, at)
	}()
	if err != nil {
		return b.explain(verb, flat(err))
	}
	return nil
}

// choose is the system that is meant. That it is the machine on record is for its caller to
// check: what answers for another machine is to be told.
func (b *BMC) choose(systems []*schemas.ComputerSystem) (*schemas.ComputerSystem, error) {
	var found []*schemas.ComputerSystem
	for _, s := range systems {
		switch {
		case b.c.System != "" && strings.Contains(s.ID, b.c.System), b.c.System == "" && len(systems) == 1:
			found = append(found, s)
		case b.c.System == "" && b.c.Want.Refuse(identity(s)) == "":
			found = append(found, s)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return nil, fmt.Errorf("%w: it has %d systems, %d of which are meant by id %q and serial number %q",
		power.ErrOtherMachine, len(systems), len(found), b.c.System, b.c.Want.SerialNumber)
}

// explain says what was tried, on what, and what is wrong, without a credential.
func (b *BMC) explain(verb string, err error) error {
	var cause error
	switch code := status(err); {
	case errors.Is(err, power.ErrOtherMachine):
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		cause = power.ErrCredentials
	case code >= 400 || code == 0 && !unanswered(err):
		cause = power.ErrRefused
	default:
		cause = power.ErrUnreachable
	}
	return &failure{words: fmt.Sprintf("%s the machine with serial number %s through %s", verb, b.c.Want.SerialNumber, b.c.Endpoint), cause: cause, text: redact(err.Error(), b.c.Password, b.basic()), err: err}
}

// basic is how the password stands in a header, which a BMC may echo.
func (b *BMC) basic() string {
	return base64.StdEncoding.EncodeToString([]byte(b.c.Username + ":" + b.c.Password))
}
