package bmc

import (
	"encoding/json"
	"net/http"
	"time"
)

// Handler is the Redfish service: what a client needs to find the one system and its
// chassis, and to reset it. It takes HTTP's basic authentication, and sessions.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /redfish/v1/{$}", s.root)
	mux.HandleFunc("POST /redfish/v1/SessionService/Sessions", s.openSession)
	for pattern, handle := range map[string]http.HandlerFunc{
		"DELETE /redfish/v1/SessionService/Sessions/{token}":             s.closeSession,
		"GET /redfish/v1/Systems":                                        s.collection("Systems", s.o.SystemID),
		"GET /redfish/v1/Systems/" + s.o.SystemID:                        s.system,
		"GET /redfish/v1/Chassis":                                        s.collection("Chassis", "Chassis"),
		"GET /redfish/v1/Chassis/Chassis":                                s.chassis,
		"GET /redfish/v1/Managers":                                       s.collection("Managers", "BMC"),
		"GET /redfish/v1/Managers/BMC":                                   s.manager,
		"POST /redfish/v1/Systems/{id}/Actions/ComputerSystem.Reset":     s.reset,
		"POST /redfish/v1/Systems/{id}/Actions/ComputerSystem.Reset/{$}": s.reset,
	} {
		mux.HandleFunc(pattern, s.authorized(handle))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redfish/v1" {
			r.URL.Path += "/"
		}
		mux.ServeHTTP(w, r)
	})
}

// object is what Redfish calls a resource.
type object map[string]any

func link(path string) object { return object{"@odata.id": path} }

func (s *Server) authorized(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, password, basic := r.BasicAuth()
		if !(basic && s.knows(user, password)) && !s.session(r.Header.Get("X-Auth-Token")) {
			refuse(w, http.StatusUnauthorized, "Base.1.8.NoValidSession", "no valid session or credentials")
			return
		}
		if s.Lie() == Hangs {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush() // the client may have gone
			<-r.Context().Done()
			return
		}
		handle(w, r)
	}
}

func (s *Server) root(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, object{
		"@odata.id": "/redfish/v1/", "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "Id": "RootService", "Name": "Root Service",
		"RedfishVersion": "1.15.0", "Systems": link("/redfish/v1/Systems"), "Chassis": link("/redfish/v1/Chassis"), "Managers": link("/redfish/v1/Managers"),
		"SessionService": link("/redfish/v1/SessionService"), "Links": object{"Sessions": link("/redfish/v1/SessionService/Sessions")},
	})
}

func (s *Server) collection(of, id string) http.HandlerFunc {
	path := "/redfish/v1/" + of
	return func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, object{
			"@odata.id": path, "Name": of, "Members@odata.count": 1, "Members": []object{link(path + "/" + id)},
		})
	}
}

func (s *Server) system(w http.ResponseWriter, r *http.Request) {
	is, err := s.state(r.Context())
	if err != nil {
		refuse(w, http.StatusInternalServerError, "Base.1.8.InternalError", err.Error())
		return
	}
	path := "/redfish/v1/Systems/" + s.o.SystemID
	out := object{
		"@odata.id": path, "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "Id": s.o.SystemID, "Name": "System",
		"SerialNumber": is.serial, "UUID": s.o.UUID, "PowerRestorePolicy": s.o.RestorePolicy,
		"LastResetTime": is.lastReset.UTC().Format(time.RFC3339), "BootProgress": object{"LastState": is.stage},
		"Links": object{"Chassis": []object{link("/redfish/v1/Chassis/Chassis")}},
		"Actions": object{"#ComputerSystem.Reset": object{
			"target": path + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": []string{"On", "ForceOff", "ForceRestart"},
		}},
	}
	if is.system != "" {
		out["PowerState"] = is.system
	}
	answer(w, http.StatusOK, out)
}

func (s *Server) chassis(w http.ResponseWriter, r *http.Request) {
	is, err := s.state(r.Context())
	if err != nil {
		refuse(w, http.StatusInternalServerError, "Base.1.8.InternalError", err.Error())
		return
	}
	out := object{
		"@odata.id": "/redfish/v1/Chassis/Chassis", "@odata.type": "#Chassis.v1_21_0.Chassis", "Id": "Chassis", "Name": "Chassis",
		"ChassisType": "RackMount", "SerialNumber": is.serial,
	}
	if is.chassis != "" {
		out["PowerState"] = is.chassis
	}
	answer(w, http.StatusOK, out)
}

func (s *Server) manager(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, object{"@odata.id": "/redfish/v1/Managers/BMC", "Id": "BMC", "Name": "Manager", "ManagerType": "BMC"})
}

func (s *Server) reset(w http.ResponseWriter, r *http.Request) {
	var body struct{ ResetType string }
	switch err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&body); {
	case err != nil || r.PathValue("id") != s.o.SystemID:
		refuse(w, http.StatusBadRequest, "Base.1.8.MalformedJSON", "no reset of a system that is here")
	case s.Lie() == Refuses:
		refuse(w, http.StatusConflict, "Base.1.8.ResourceInUse", "not now")
	case !s.accept(r.Context(), body.ResetType):
		refuse(w, http.StatusBadRequest, "Base.1.8.ActionParameterValueNotInList", "no such reset type")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) openSession(w http.ResponseWriter, r *http.Request) {
	var body struct{ UserName, Password string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "Base.1.8.MalformedJSON", "no user name and password")
		return
	}
	token := s.login(body.UserName, body.Password)
	if token == "" {
		refuse(w, http.StatusUnauthorized, "Base.1.8.NoValidSession", "no valid credentials")
		return
	}
	path := "/redfish/v1/SessionService/Sessions/" + token
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", path)
	answer(w, http.StatusCreated, object{"@odata.id": path, "Id": token, "Name": "Session", "UserName": body.UserName})
}

func (s *Server) closeSession(w http.ResponseWriter, r *http.Request) {
	s.logout(r.PathValue("token"))
	w.WriteHeader(http.StatusNoContent)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, object{"error": object{"code": code, "message": message}})
}

func answer(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("OData-Version", "4.0")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}
