package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

type schema = map[string]any

// null is what a value may be that stands for what the manifests have.
func orNull(kind string) schema { return schema{"type": []string{kind, "null"}} }

// driverName is the name of a CSIDriver.
var driverName = schema{"type": "string", "pattern": `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`, "maxLength": 63}

// exact are the schemas of values by their whole names.
var exact = map[string]schema{
	"cluster":                          {"enum": []string{"", "host", "dpu"}},
	"attachMode":                       {"enum": []string{"Controller", "Node"}},
	"host.snapCsiPlugin.emulationMode": {"enum": []string{"nvme", "virtiofs"}},
	"host.snapCsiPlugin.name":          driverName,
	"host.snapHostController.config.driverNames": {"type": "array", "items": driverName},
	"networkPolicies.apiServer.ports":            {"type": "array", "minItems": 1, "items": schema{"type": "integer", "minimum": 1, "maximum": 65535}},
	"networkPolicies.apiServer.cidrs":            {"type": "array", "items": schema{"type": "string", "pattern": "/"}},
	"dpu.docaSnap":                               open(true),
	"dpu.nfsStorageVendorDpuPlugin":              open(true),
	"host.snapCsiPlugin.node.kubeletDir":         {"type": "string", "pattern": "^/"},
}

// byKey are those of values by the last part of their names.
var byKey = map[string]schema{
	"replicas":               {"type": []string{"integer", "null"}, "minimum": 0},
	"logLevel":               {"type": []string{"integer", "null"}, "minimum": 0},
	"maxVolumesPerNode":      {"type": []string{"integer", "null"}, "minimum": 0},
	"livenessProbePort":      {"type": []string{"integer", "null"}, "minimum": 1, "maximum": 65535},
	"imagePullPolicy":        {"enum": []any{"Always", "IfNotPresent", "Never", nil}},
	"hostNetwork":            orNull("boolean"),
	"nvmeLoadDriver":         orNull("boolean"),
	"nvmeCreateVFs":          orNull("boolean"),
	"virtiofsLoadDriver":     orNull("boolean"),
	"snapControllerDeviceId": orNull("string"),
	"virtiofsFSTypeName":     orNull("string"),
	"linkAddress":            orNull("string"),
	"image": {"type": "object", "additionalProperties": false, "properties": schema{
		"repository": schema{"type": "string"}, "tag": schema{"type": "string"},
	}},
	"extraArgs": {
		"type": "object", "propertyNames": schema{"pattern": "^--[a-z]"},
		"additionalProperties": schema{"type": []string{"string", "number", "boolean"}},
	},
	"server": {"type": "string", "pattern": "^(https://.+)?$"},
}

// open is an object with any values, which may be enabled or not.
func open(switched bool) schema {
	s := schema{"type": "object"}
	if switched {
		s["properties"] = schema{"enabled": schema{"type": "boolean"}}
	}
	return s
}

// valuesSchema is values.schema.json: what values.yaml has may be set, to its type, and
// nothing else.
func valuesSchema(values []byte) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return "", fmt.Errorf("values.yaml: %w", err)
	}
	top, err := schemaOf("", document.Content[0])
	if err != nil {
		return "", err
	}
	top["$schema"] = "http://json-schema.org/draft-07/schema#"
	top["properties"].(schema)["global"] = schema{"type": "object"} // Helm's own
	raw, err := json.MarshalIndent(top, "", "  ")
	return string(raw) + "\n", err
}

func schemaOf(name string, value *yaml.Node) (schema, error) {
	key := name[strings.LastIndex(name, ".")+1:]
	if s, ok := exact[name]; ok {
		return s, nil
	}
	if s, ok := byKey[key]; ok && name != "image" {
		return s, nil
	}
	switch {
	case value.Kind == yaml.SequenceNode:
		return schema{"type": "array", "items": schema{"type": "object"}}, nil
	case value.Kind == yaml.MappingNode && len(value.Content) == 0:
		return open(false), nil
	case value.Kind == yaml.MappingNode:
		properties := schema{}
		for i := 0; i+1 < len(value.Content); i += 2 {
			child := strings.TrimPrefix(name+"."+value.Content[i].Value, ".")
			s, err := schemaOf(child, value.Content[i+1])
			if err != nil {
				return nil, err
			}
			properties[value.Content[i].Value] = s
		}
		return schema{"type": "object", "additionalProperties": false, "properties": properties}, nil
	case value.Tag == "!!bool":
		return schema{"type": "boolean"}, nil
	case value.Tag == "!!str":
		return schema{"type": "string"}, nil
	}
	return nil, fmt.Errorf("%s is %s in values.yaml: hack/chart/schema.go has to say what it may be", name, value.Tag)
}
