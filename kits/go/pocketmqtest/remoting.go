package pocketmqtest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	requestTimeout  = 30 * time.Second
	headerLengthMax = 1 << 20
)

// header is that of a frame of RocketMQ's remoting protocol, in JSON.
type header struct {
	Code      int               `json:"code"`
	Flag      int               `json:"flag"`
	Language  string            `json:"language"`
	Opaque    int               `json:"opaque"`
	Version   int               `json:"version"`
	Serialize string            `json:"serializeTypeCurrentRPC"`
	Remark    string            `json:"remark,omitempty"`
	Fields    map[string]string `json:"extFields"`
}

// call sends one request on a connection of its own, and returns the fields of the answer. A refusal is an error.
func call(address string, code int, fields map[string]string) (map[string]string, error) {
	answer, err := exchange(address, header{Code: code, Language: "GO", Opaque: 1, Version: 399, Serialize: "JSON", Fields: fields})
	if err != nil {
		return nil, fmt.Errorf("the broker at %s did not answer request %d: %w", address, code, err)
	}
	if answer.Code != 0 {
		return nil, fmt.Errorf("the broker refused request %d with code %d: %s", code, answer.Code, answer.Remark)
	}
	return answer.Fields, nil
}

// exchange sends a frame and reads one: its length, the length of its header, the header, and the body.
func exchange(address string, request header) (answer header, err error) {
	connection, err := net.DialTimeout("tcp", address, requestTimeout)
	if err != nil {
		return answer, err
	}
	defer connection.Close()
	if err = connection.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return answer, err
	}
	sent, err := json.Marshal(request)
	if err != nil {
		return answer, err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(sent)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(sent)))
	if _, err = connection.Write(append(frame, sent...)); err != nil {
		return answer, err
	}
	var lengths [8]byte
	if _, err = io.ReadFull(connection, lengths[:]); err != nil {
		return answer, err
	}
	length := binary.BigEndian.Uint32(lengths[4:]) & 0xFFFFFF // the first byte is the kind of the header: 0 for JSON
	if length > headerLengthMax {
		return answer, fmt.Errorf("a header of %d bytes", length)
	}
	received := make([]byte, length)
	if _, err = io.ReadFull(connection, received); err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(received, &answer)
}
