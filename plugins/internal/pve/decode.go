package pve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// decode reads the JSON that pvesh prints into what into points to. It refuses what no working node
// prints, so that a broken node is an error and not an empty list: null for the value itself,
// repeated keys, and an object without a key that Proxmox always prints. Such a field has the tag
// need:"true".
func decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	v, err := tree(d, 0)
	if err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("there is more than one JSON value")
	}
	if v == nil {
		return fmt.Errorf("it is null")
	}
	if err := needed(v, reflect.TypeOf(into).Elem(), "the answer"); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

const maxDepth = 64

// tree reads a value without repeated keys. Only objects and lists keep their contents.
func tree(d *json.Decoder, depth int) (any, error) {
	tok, err := d.Token()
	if err != nil || depth > maxDepth {
		return nil, fmt.Errorf("it is cut short, not JSON, or too deep: %v", err)
	}
	switch tok {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := tree(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			tok, err := d.Token()
			if err != nil {
				return nil, err
			}
			key := strings.ToLower(tok.(string))
			if _, twice := object[key]; twice {
				return nil, fmt.Errorf("the key %q stands twice in one object", tok)
			}
			if object[key], err = tree(d, depth+1); err != nil {
				return nil, err
			}
		}
		_, err := d.Token()
		return object, err
	}
	return tok, nil
}

// needed checks the fields with the tag need.
func needed(v any, t reflect.Type, at string) error {
	switch t.Kind() {
	case reflect.Slice:
		list, is := v.([]any)
		if !is {
			return fmt.Errorf("%s is not a list", at)
		}
		for i, e := range list {
			if err := needed(e, t.Elem(), fmt.Sprintf("entry %d", i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		object, is := v.(map[string]any)
		if !is {
			return fmt.Errorf("%s is not an object", at)
		}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			if f.Tag.Get("need") != "" && object[strings.ToLower(name)] == nil {
				return fmt.Errorf("%s has no %s", at, strings.ToLower(name))
			}
		}
	}
	return nil
}

// checkGuests refuses rows that contradict each other or that cannot be.
func checkGuests(all []Guest) error {
	for i, g := range all {
		switch {
		case g.VMID < 100 || g.VMID > 999_999_999:
			return fmt.Errorf("%d is not a VMID", g.VMID)
		case g.Type != "lxc" && g.Type != "qemu":
			return fmt.Errorf("guest %d has the unknown type %q", g.VMID, g.Type)
		case g.Node == "":
			return fmt.Errorf("guest %d is on no node", g.VMID)
		case slices.ContainsFunc(all[:i], func(o Guest) bool { return o.VMID == g.VMID }):
			return fmt.Errorf("guest %d is listed twice", g.VMID)
		}
	}
	return nil
}
