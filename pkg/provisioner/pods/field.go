package pods

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/moor-storage/moor/internal/jinja"
)

// Claims is where templates look up claims by get_pvc.
type Claims interface {
	// Claim returns a PersistentVolumeClaim, or an error that says what was looked for.
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
}

// tree is a field of a PavProvisioner: a value, every string in which is a template.
type tree struct {
	path *field.Path
	// One of these is set; else it is a literal.
	template *jinja.Template
	list     []*tree
	object   map[string]*tree
	literal  any
	// plain: no string in it has a sign of the template language.
	plain bool
}

// compile makes a tree of JSON; nil of nothing.
func compile(path *field.Path, raw *apiextensionsv1.JSON) (*tree, field.ErrorList) {
	if raw == nil {
		return nil, nil
	}
	var v any
	if err := utiljson.Unmarshal(raw.Raw, &v); err != nil {
		return nil, field.ErrorList{field.Invalid(path, string(raw.Raw), "is no JSON: "+err.Error())}
	}
	return grow(path, v)
}

// digest is a hash of JSON that does not depend on how it is laid out; empty of nothing.
func digest(raw *apiextensionsv1.JSON) string {
	if raw == nil {
		return ""
	}
	content := raw.Raw
	var v any
	if utiljson.Unmarshal(raw.Raw, &v) == nil {
		if plain, err := json.Marshal(v); err == nil {
			content = plain
		}
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func grow(path *field.Path, v any) (*tree, field.ErrorList) {
	out := &tree{path: path, plain: true}
	var errs field.ErrorList
	add := func(child *tree, more field.ErrorList) *tree {
		errs = append(errs, more...)
		out.plain = out.plain && child.plain
		return child
	}
	switch v := v.(type) {
	case string:
		t, err := jinja.Compile(v)
		if err != nil {
			errs = append(errs, field.Invalid(path, shortened(v), "is no template: "+err.Error()))
		}
		out.template, out.plain = t, !templated(v)
		if out.plain {
			out.literal = v
		}
	case []any:
		out.list = make([]*tree, 0, len(v))
		for i, item := range v {
			out.list = append(out.list, add(grow(path.Index(i), item)))
		}
	case map[string]any:
		out.object = map[string]*tree{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out.object[k] = add(grow(path.Child(k), v[k]))
		}
	default:
		out.literal = v
	}
	return out, errs
}

// templated reports whether a text has a sign of the template language in it.
func templated(s string) bool {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return true
		}
	}
	return false
}

// shownText is how much of a text an error shows.
const shownText = 60

func shortened(s string) string {
	if r := []rune(s); len(r) > shownText {
		return string(r[:shownText]) + "..."
	}
	return s
}

// evaluation is one evaluation of fields.
type evaluation struct {
	ctx    context.Context
	claims Claims
	Context
}

// evaluationTime bounds the evaluation of all templates of a phase together: each is bounded by itself,
// and an object has room for thousands.
const evaluationTime = 10 * time.Second

// evaluate begins an evaluation; end has to be called.
func evaluate(ctx context.Context, claims Claims, c Context) (e evaluation, end context.CancelFunc) {
	ctx, end = context.WithTimeoutCause(ctx, evaluationTime, fmt.Errorf("the templates take longer than %s", evaluationTime))
	return evaluation{ctx, claims, c}, end
}

// of evaluates a field: strings, and what a string stands for that has set yaml, replace the
// templates. The result is not evaluated again. nil if the field is absent.
func (e evaluation) of(t *tree) (any, error) {
	switch {
	case t == nil:
		return nil, nil
	case t.template != nil:
		v, err := e.render(t.template)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.path, err)
		}
		return v, nil
	case t.list != nil:
		out := make([]any, len(t.list))
		for i, child := range t.list {
			var err error
			if out[i], err = e.of(child); err != nil {
				return nil, err
			}
		}
		return out, nil
	case t.object != nil:
		out := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(t.object)) {
			var err error
			if out[k], err = e.of(t.object[k]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return t.literal, nil
}

// variableYAML is what a template sets to true to have its text read as YAML.
const variableYAML = "yaml"

func (e evaluation) render(t *jinja.Template) (any, error) {
	result, err := t.Render(e.ctx, e.variables, map[string]jinja.Function{"get_pvc": e.claim})
	if err != nil {
		return nil, err
	}
	switch v, set := result.Variables[variableYAML]; {
	case !set || v == false:
		return result.Text, nil
	case v != true:
		return nil, fmt.Errorf("the variable yaml has to be true or false, and is %v", v)
	}
	out, err := readYAML(result.Text)
	if err != nil {
		return nil, fmt.Errorf("the result is no YAML: %w", err)
	}
	return out, nil
}

// claim is get_pvc(name, namespace).
func (e evaluation) claim(ctx context.Context, positional []any, named map[string]any) (any, error) {
	given := map[string]any{}
	maps.Copy(given, named)
	for i, v := range positional {
		if i > 1 {
			return nil, errors.New("it takes a name and a namespace")
		}
		given[[]string{"name", "namespace"}[i]] = v
	}
	name, one := given["name"].(string)
	namespace, two := given["namespace"].(string)
	if !one || !two || len(given) > 2 || name == "" || namespace == "" {
		return nil, errors.New("it takes a name and a namespace, which have to be strings")
	}
	claim, err := e.claims.Claim(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return asJSON(claim, "v1", "PersistentVolumeClaim")
}

// asJSON is an object as the API shows it.
func asJSON(o any, version, kind string) (map[string]any, error) {
	content, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("write a %s as JSON: %w", kind, err)
	}
	out := map[string]any{}
	if err := utiljson.Unmarshal(content, &out); err != nil {
		return nil, fmt.Errorf("read a %s as JSON: %w", kind, err)
	}
	out["apiVersion"], out["kind"] = version, kind // a client leaves them empty
	return out, nil
}
