package wire

import (
	"bytes"
	"testing"
)

func TestRequestHeaderRoundTrips(t *testing.T) {
	id := "client"
	for _, h := range []RequestHeader{
		{Key: 3, Version: 9, CorrelationID: 7, ClientID: &id},
		{Key: 0, Version: 3, CorrelationID: -1, ClientID: nil},
	} {
		for _, flexible := range []bool{false, true} {
			frame := AppendRequestHeader(nil, h, flexible)
			frame = append(frame, "body"...)
			FinishFrame(frame, 0)
			got, body, err := ParseRequestHeader(frame[4:], func(APIKey, int16) bool { return flexible })
			if err != nil || string(body) != "body" || got.Key != h.Key || got.Version != h.Version || got.CorrelationID != h.CorrelationID {
				t.Errorf("flexible %v: got %+v, %q, %v; want %+v", flexible, got, body, err, h)
			}
			if (got.ClientID == nil) != (h.ClientID == nil) || h.ClientID != nil && *got.ClientID != id {
				t.Errorf("client id %v", got.ClientID)
			}
		}
	}
}

func TestCutRequestHeadersAreRefused(t *testing.T) {
	id := "client"
	frame := AppendRequestHeader(nil, RequestHeader{Key: 3, Version: 9, ClientID: &id}, true)[4:]
	for cut := range len(frame) {
		if _, _, err := ParseRequestHeader(frame[:cut], func(APIKey, int16) bool { return true }); err == nil {
			t.Errorf("header cut to %d of %d bytes is accepted", cut, len(frame))
		}
	}
}

func TestUnknownTagsOfAHeaderAreSkipped(t *testing.T) {
	frame := AppendRequestHeader(nil, RequestHeader{Key: 3, Version: 9}, false)[4:]
	frame = append(frame, 2, 0, 1, 'a', 5, 2, 'b', 'c') // two tags
	frame = append(frame, "body"...)
	_, body, err := ParseRequestHeader(frame, func(APIKey, int16) bool { return true })
	if err != nil || !bytes.Equal(body, []byte("body")) {
		t.Errorf("got %q, %v", body, err)
	}
}

func FuzzParseRequestHeader(f *testing.F) {
	id := "client"
	f.Add(AppendRequestHeader(nil, RequestHeader{Key: 3, Version: 9, ClientID: &id}, true)[4:], true)
	f.Add([]byte{0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff}, false)
	f.Fuzz(func(t *testing.T, frame []byte, flexible bool) {
		_, body, err := ParseRequestHeader(frame, func(APIKey, int16) bool { return flexible })
		if err == nil && len(body) > len(frame) {
			t.Errorf("body of %d bytes out of %d", len(body), len(frame))
		}
	})
}

func TestTopicNames(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), 249))
	for name, valid := range map[string]bool{
		"a.b_c-9": true, long: true, long + "x": false, "": false, ".": false, "..": false, "...": true, "a/b": false, "a b": false, "é": false,
	} {
		if ValidTopicName(name) != valid {
			t.Errorf("%q: valid is %v", name, !valid)
		}
	}
}

func TestTopicIDsRoundTripAsText(t *testing.T) {
	id := TopicID{1, 2, 3, 255}
	text, _ := id.MarshalText()
	var got TopicID
	if err := got.UnmarshalText(text); err != nil || got != id {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "AAAA", "!!!!!!!!!!!!!!!!!!!!!!"} {
		if _, err := ParseTopicID(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestCodesKeepTheirMeaningWhenWrapped(t *testing.T) {
	err := error(NewError(InvalidConfig, "why"))
	if CodeOf(err) != InvalidConfig || *MessageOf(err) != "why" || CodeOf(nil) != None || CodeOf(errShortHeader) != UnknownServerError {
		t.Errorf("code %v, message %v", CodeOf(err), MessageOf(err))
	}
	if InvalidConfig.Error() != "INVALID_CONFIG" || InvalidConfig.Retriable() || !NotController.Retriable() {
		t.Error("names or retriable flags are off")
	}
}
