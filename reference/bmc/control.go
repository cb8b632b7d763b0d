package bmc

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Control is how a test has the BMC lie: PUT /lie with the name of one, or with nothing
// for the truth; GET /lie says which it tells, and GET /resets what it was asked for, a line
// each. It asks for no credentials, so it is not for the network of the machines.
func (s *Server) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /lie", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, s.Lie()) })
	mux.HandleFunc("GET /resets", func(w http.ResponseWriter, _ *http.Request) {
		for _, r := range s.Resets() {
			_, _ = fmt.Fprintln(w, r)
		}
	})
	mux.HandleFunc("PUT /lie", func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
		if err == nil {
			err = s.SetLie(Lie(strings.TrimSpace(string(raw))))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	})
	return mux
}
