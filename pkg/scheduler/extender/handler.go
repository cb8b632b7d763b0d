package extender

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/pkg/scheduler/refused"
	"github.com/moor-storage/moor/pkg/scheduler/state"
)

// Defaults of Options.
const (
	// DefaultTimeout, twice, is the httpTimeout that the shipped scheduler
	// configuration sets.
	DefaultTimeout = 500 * time.Millisecond
	// DefaultMaxBody takes 5,000 whole Node objects of 6 KiB, and 50,000 names.
	DefaultMaxBody = 32 << 20
)

// Source is what the extender answers from.
type Source interface {
	// Index is the state now.
	Index() *state.Index
	// Ready is nil once the index is complete; its error says what is missing.
	Ready() error
}

// Options of a Handler.
type Options struct {
	Source Source
	// Refused are told of the pods that found no node here; those of a Retry. Nothing
	// is tried again if nil.
	Refused *refused.Pods
	// Timeout of reading a request, and again of writing its answer; between
	// the two nothing is waited for. DefaultTimeout if not positive.
	Timeout time.Duration
	// MaxBody is the size of a request's body in bytes; DefaultMaxBody if not
	// positive.
	MaxBody int64
	// Registerer for the metrics.
	Registerer prometheus.Registerer
}

// Handler serves /filter, /prioritize, /healthz and /readyz.
type Handler struct {
	o       Options
	mux     *http.ServeMux
	seconds *prometheus.HistogramVec
}

// New returns a handler. Its error is that of registering the metrics.
func New(o Options) (*Handler, error) {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.Refused == nil {
		o.Refused = refused.New(clock.RealClock{}, Keep)
	}
	h := &Handler{o: o, mux: http.NewServeMux(), seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "moor_extender_request_seconds",
		Help:    "Time from the head of a scheduler's request to the end of its answer, by verb and HTTP code.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"verb", "code"})}
	if err := o.Registerer.Register(h.seconds); err != nil {
		return nil, fmt.Errorf("register the metrics of the extender: %w", err)
	}
	h.mux.Handle("POST /filter", h.verb("filter", h.filter))
	h.mux.Handle("POST /prioritize", h.verb("prioritize", h.prioritize))
	h.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	h.mux.HandleFunc("GET /readyz", h.readyz)
	return h, nil
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

func (h *Handler) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := h.o.Source.Ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// httpError is an answer that is no 200, with its reason.
type httpError struct {
	code  int
	words string
}

// Error makes it an error.
func (e *httpError) Error() string { return e.words }

// verb serves one verb with deadline, limits and metrics.
func (h *Handler) verb(name string, answer func(*extenderv1.ExtenderArgs) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		code := h.serve(w, r, answer)
		h.seconds.WithLabelValues(name, strconv.Itoa(code)).Observe(time.Since(begin).Seconds())
	})
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, answer func(*extenderv1.ExtenderArgs) any) int {
	deadline := http.NewResponseController(w)
	// Not every writer has deadlines (those of tests have none).
	_ = deadline.SetReadDeadline(time.Now().Add(h.o.Timeout))
	body, err := h.answer(w, r, answer)
	_ = deadline.SetWriteDeadline(time.Now().Add(h.o.Timeout))
	var no *httpError
	if errors.As(err, &no) {
		http.Error(w, no.words, no.code)
		return no.code
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	// A scheduler that hung up needs no answer, and there is no one else to tell.
	_, _ = w.Write(body)
	return http.StatusOK
}

// answer reads the question and answers it; its errors are all httpErrors.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, answer func(*extenderv1.ExtenderArgs) any) ([]byte, error) {
	if err := h.o.Source.Ready(); err != nil {
		return nil, &httpError{http.StatusServiceUnavailable, err.Error()}
	}
	args, err := read(http.MaxBytesReader(w, r.Body, h.o.MaxBody), r.ContentLength, h.o.MaxBody)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(answer(args))
	if err != nil {
		return nil, &httpError{http.StatusInternalServerError, "encode the answer: " + err.Error()}
	}
	return body, nil
}

// read takes in a question whole.
func read(from io.Reader, length, limit int64) (*extenderv1.ExtenderArgs, error) {
	body, err := slurp(from, min(max(length, 0), limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &httpError{
			http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the body has more than %d bytes: set nodeCacheCapable in the scheduler's configuration, so that it sends names alone", large.Limit),
		}
	case err != nil:
		return nil, &httpError{http.StatusRequestTimeout, "read the body: " + err.Error()}
	}
	args, err := decode(body)
	if err != nil {
		return nil, &httpError{http.StatusBadRequest, "the body is no ExtenderArgs: " + err.Error()}
	}
	switch {
	case args.Pod == nil:
		return nil, &httpError{http.StatusBadRequest, "the body has no Pod"}
	case args.Nodes == nil && args.NodeNames == nil:
		return nil, &httpError{http.StatusBadRequest, "the body has neither NodeNames nor Nodes"}
	}
	return args, nil
}

// slurp is io.ReadAll with room for the length announced.
func slurp(from io.Reader, length int64) ([]byte, error) {
	body := make([]byte, 0, length+1)
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
