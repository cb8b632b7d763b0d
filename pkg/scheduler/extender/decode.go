package extender

import (
	"bytes"
	"encoding/json"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// namesKey is where a body of kube-scheduler's turns to its last field.
var namesKey = []byte(`,"NodeNames":[`)

// decode is json.Unmarshal for questions. Nearly all of a question is the
// names of nodes, thousands of plain strings, which are read here at a tenth of
// the cost; whatever does not look exactly so is left to json.Unmarshal.
func decode(body []byte) (*extenderv1.ExtenderArgs, error) {
	if args, ok := decodeFast(body); ok {
		return args, nil
	}
	args := &extenderv1.ExtenderArgs{}
	return args, json.Unmarshal(body, args)
}

// decodeFast cuts the last field off. The cut is right if what is left, closed
// with a brace, is an object by itself: the names then were a field of that
// object and of none inside it, and in a string the quotes would have been
// escaped.
func decodeFast(body []byte) (*extenderv1.ExtenderArgs, bool) {
	cut := bytes.LastIndex(body, namesKey)
	if cut < 1 || (body[cut-1] != '}' && body[cut-1] != 'l') {
		return nil, false // no value before it: an object or null
	}
	names, ok := plainNames(body[cut+len(namesKey):])
	if !ok {
		return nil, false
	}
	body[cut] = '}'
	args := &extenderv1.ExtenderArgs{}
	err := json.Unmarshal(body[:cut+1], args)
	body[cut] = ','
	if err != nil {
		return nil, false
	}
	args.NodeNames = &names
	return args, true
}

// plainNames reads `"a","b"]}`, and nothing else but white space at the end.
// The names share one string.
func plainNames(raw []byte) ([]string, bool) {
	raw, ok := bytes.CutSuffix(bytes.TrimRight(raw, " \t\r\n"), []byte(`"]}`))
	if !ok || len(raw) == 0 || raw[0] != '"' {
		return nil, false
	}
	all := string(raw[1:])
	names := make([]string, 0, bytes.Count(raw, []byte{','})+1)
	begin := 0
	for i := 0; i < len(all); i++ {
		switch c := all[i]; {
		case plain[c]:
		case c == '"' && i+2 < len(all) && all[i+1] == ',' && all[i+2] == '"':
			names = append(names, all[begin:i])
			i += 2
			begin = i + 1
		default:
			return nil, false
		}
	}
	return append(names, all[begin:]), true
}

// plain are the characters that names of nodes have (RFC 1123 subdomains), and
// that mean themselves in JSON.
var plain = func() (out [256]bool) {
	for _, c := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._" {
		out[c] = true
	}
	return out
}()
