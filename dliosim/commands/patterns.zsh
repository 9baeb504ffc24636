_dliosim_patterns() {
    compadd NAMES
    _files -g '*.dlio'
}
