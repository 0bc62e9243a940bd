//! HTTP responses, and raw connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A response of the server.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn of(mut response: http::Response<ureq::Body>) -> Self {
        let headers = response.headers().iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        Self {
            status: response.status().as_u16(),
            headers: headers.collect(),
            body: response.body_mut().read_to_string().unwrap(),
        }
    }

    /// Sends raw bytes, which must ask for the connection to be closed, and returns the response.
    pub(crate) fn to_bytes(address: SocketAddr, request: &[u8]) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut response = Vec::new();
        // The connection may be reset if the server has not read everything.
        let _ = stream.read_to_end(&mut response);
        Self::parse(&String::from_utf8(response).unwrap())
    }

    /// Sends a request with exactly these header lines.
    pub(crate) fn to(address: SocketAddr, line: &str, headers: &[&str], body: &[u8]) -> Self {
        let mut request = format!("{line} HTTP/1.1\r\nconnection: close\r\n").into_bytes();
        for header in headers {
            request.extend(format!("{header}\r\n").bytes());
        }
        request.extend(format!("content-length: {}\r\n\r\n", body.len()).bytes());
        request.extend(body);
        Self::to_bytes(address, &request)
    }

    fn parse(response: &str) -> Self {
        let (head, body) = response.split_once("\r\n\r\n").expect("a response with a head");
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        Self {
            status,
            headers: headers.map(|(name, value)| (name.to_lowercase(), value.into())).collect(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// Returns a member of a JSON body.
    pub(crate) fn member(&self, name: &str) -> serde_json::Value {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        body[name].clone()
    }

    /// Returns a string member of a JSON body.
    pub(crate) fn text(&self, name: &str) -> String {
        self.member(name).as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

/// Starts a request whose body is still missing, and waits until the server handles it.
pub(crate) fn start_request(address: SocketAddr, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The server sends 100 Continue once it handles the request.
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}
