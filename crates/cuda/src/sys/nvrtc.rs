//! [NVRTC](https://docs.nvidia.com/cuda/nvrtc/), the compiler of kernels.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use super::{functions, open};
use crate::Error;

functions!(Table of "NVRTC" {
    create = "nvrtcCreateProgram" (*mut *mut c_void, *const c_char, *const c_char, i32, *const *const c_char,
                                   *const *const c_char);
    destroy = "nvrtcDestroyProgram" (*mut *mut c_void);
    compile = "nvrtcCompileProgram" (*mut c_void, i32, *const *const c_char);
    log_size = "nvrtcGetProgramLogSize" (*mut c_void, *mut usize);
    log = "nvrtcGetProgramLog" (*mut c_void, *mut c_char);
    cubin_size = "nvrtcGetCUBINSize" (*mut c_void, *mut usize);
    cubin = "nvrtcGetCUBIN" (*mut c_void, *mut c_char);
});

pub(crate) struct Nvrtc {
    table: Table,
    #[allow(dead_code)] // the functions are its
    library: libloading::Library,
}

impl Nvrtc {
    /// Loads it, from one of some folders or wherever the system finds it.
    pub(crate) fn load(folders: &[std::path::PathBuf]) -> Result<Nvrtc, Error> {
        let plain =
            ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll"];
        let within = |folder: &Path| {
            plain.iter().map(|name| folder.join(name).to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let names: Vec<String> = folders.iter().flat_map(|folder| within(folder)).collect();
        let names: Vec<String> = names.into_iter().chain(plain.map(str::to_owned)).collect();
        let library = open("NVRTC", &names)?;
        Ok(Nvrtc { table: Table::load(&library)?, library })
    }

    /// A source's machine code for an architecture, such as `sm_90a`.
    pub(crate) fn compile(
        &self,
        module: &str,
        source: &str,
        arch: &str,
        defines: &[String],
    ) -> Result<Vec<u8>, Error> {
        let failed = |log: &str| Error::Compile {
            module: module.to_owned(),
            arch: arch.to_owned(),
            log: log.to_owned(),
        };
        let text = |text: String| CString::new(text).map_err(|_| failed("a name has a zero byte"));
        let (source, name) = (text(source.to_owned())?, text(format!("{module}.cu"))?);
        let options =
            ["--std=c++17".to_owned(), format!("--gpu-architecture={arch}"), "-default-device".to_owned()];
        let options = options.into_iter().chain(defines.iter().map(|define| format!("-D{define}")));
        let options: Vec<CString> = options.map(text).collect::<Result<_, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = null_mut();
        // SAFETY: `nvrtcCreateProgram` asks for terminated strings and a place for the handle.
        let made =
            unsafe { (self.table.create)(&mut program, source.as_ptr(), name.as_ptr(), 0, null(), null()) };
        if made != 0 {
            return Err(failed("no program can be made"));
        }
        let program = NvrtcProgram { table: &self.table, program };
        // SAFETY: `nvrtcCompileProgram` asks for a program and as many terminated options as it is told.
        let compiled =
            unsafe { (self.table.compile)(program.program, options.len() as i32, options.as_ptr()) };
        if compiled != 0 {
            return Err(failed(&program.log()));
        }
        program.bytes(self.table.cubin_size, self.table.cubin).ok_or_else(|| failed("no machine code"))
    }
}

struct NvrtcProgram<'a> {
    table: &'a Table,
    program: *mut c_void,
}

type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> i32;
type Bytes = unsafe extern "C" fn(*mut c_void, *mut c_char) -> i32;

impl NvrtcProgram<'_> {
    fn bytes(&self, size: Size, bytes: Bytes) -> Option<Vec<u8>> {
        let mut length = 0;
        // SAFETY: asks for a program and a place for a number.
        if unsafe { size(self.program, &mut length) } != 0 {
            return None;
        }
        let mut result = vec![0u8; length];
        // SAFETY: asks for a program and as many bytes as its size function said.
        (unsafe { bytes(self.program, result.as_mut_ptr().cast()) } == 0).then_some(result)
    }

    fn log(&self) -> String {
        let log = self.bytes(self.table.log_size, self.table.log).unwrap_or_default();
        String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned()
    }
}

impl Drop for NvrtcProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: `nvrtcDestroyProgram` asks for a program that was made and not destroyed yet.
        unsafe { (self.table.destroy)(&mut self.program) };
    }
}
